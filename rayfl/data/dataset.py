"""Data sets as their sources return them: samples and, if the data has them, the clients they come from.

`ClientNames` holds the names of very many natural clients, such as sites or writers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np

from rayfl.config.section import Named
from rayfl.data.checks import check_dataset
from rayfl.data.indexed_rows import row_numbers, selected
from rayfl.data.inputs import are_images, taken

AT_ONCE = 2**16
"""Clients at a time, where each needs some memory for a moment."""


@dataclass(frozen=True)
class Samples:
    """Inputs and labels, row by row.

    Attributes:
        x: [n, height, width, channels] uint8 for images (0..255). Other inputs reach the model unchanged, except that
            floating point numbers become float32 and integers int64. Inputs by name (`Fields`) reach the network as
            keyword arguments; `data.collate` makes batches of inputs that differ in length (`Ragged`).
        y: [n] class labels, int64 or a smaller integer; or other labels, integers or floating point numbers: [n],
            vectors [n, k] or maps [n, height, width]. Those of a `ClientSource` are loaded when they are accessed.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Samples
        >>> images = np.zeros((5, 28, 28, 1), np.uint8)
        >>> samples = Samples(images, np.array([3, 1, 4, 1, 5]))
        >>> samples.take(np.array([2, 0])).y
        array([4, 3])
    """

    x: Any
    """One of `rayfl.data.inputs.Inputs`; code that indexes it knows which."""
    y: Any
    """An array, or `rayfl.data.client_rows.ClientRows`."""

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: np.ndarray) -> Samples:
        """Some of the samples, in the order of `rows`; windows of a text and ragged inputs share their memory."""
        return Samples(taken(self.x, rows), taken(self.y, rows))

    def select(self, rows: np.ndarray) -> Samples:
        """Some of the samples, in the order of `rows`; arrays of inputs are shared, and read through row numbers."""
        return Samples(selected(self.x, rows), taken(self.y, rows))


def has_label_maps(samples: Samples) -> bool:
    """Whether every pixel of an image has its own label."""
    return samples.y.ndim == 3 and are_images(samples.x) and samples.y.shape[1:] == samples.x.shape[1:3]


@dataclass(frozen=True)
class Shards:
    """Rows by client: client c owns `rows[offsets[c]:offsets[c + 1]]`. Costs 4 or 8 bytes per row and 8 per client.

    Attributes:
        rows: [n] int32 or int64, each row at most once.
        offsets: [clients + 1] int64, from 0 to n, never decreasing.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Shards
        >>> shards = Shards.by_owner(np.array([1, 0, 1, 1]), clients=2)
        >>> shards[1]
        array([0, 2, 3])
        >>> shards.sizes
        array([1, 3])
    """

    rows: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> np.ndarray:
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    @property
    def sizes(self) -> np.ndarray:
        """[clients] int64: how many rows each client owns."""
        return np.diff(self.offsets)

    @property
    def firsts(self) -> np.ndarray:
        """[clients]: the first row of each client; every client must have one."""
        firsts: np.ndarray = self.rows[self.offsets[:-1]]
        return firsts

    @staticmethod
    def by_owner(owner: np.ndarray, clients: int) -> Shards:
        """Shards from the owner of every row, [n] integers in 0..clients-1; rows keep their order."""
        rows = np.argsort(owner, kind="stable").astype(np.int64)
        offsets = np.zeros(clients + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=clients), out=offsets[1:])
        return Shards(rows, offsets)

    def subset(self, clients: np.ndarray) -> Shards:
        """The shards of some clients, renumbered 0, 1, ... in the order given."""
        offsets = np.zeros(len(clients) + 1, np.int64)
        np.cumsum(self.sizes[clients], out=offsets[1:])
        return Shards(_ranges(self.rows, self.offsets[clients], offsets), offsets)


class OrderedShards(Shards):
    """Shards of rows that are ordered by client: client c owns rows `offsets[c]` to `offsets[c + 1] - 1`.

    They cost 8 bytes per client; the numbers of all rows are made anew whenever `rows` is read.
    """

    def __init__(self, offsets: np.ndarray) -> None:
        object.__setattr__(self, "offsets", offsets)

    @property
    def rows(self) -> np.ndarray:
        """[n] int32 or int64, ascending."""
        return np.arange(self.offsets[-1], dtype=row_numbers(int(self.offsets[-1])))

    @property
    def firsts(self) -> np.ndarray:
        """[clients] int64: the first row of each client."""
        return self.offsets[:-1]

    def __getitem__(self, client: int) -> np.ndarray:
        client = range(len(self))[client]
        return np.arange(*self.offsets[client : client + 2], dtype=row_numbers(int(self.offsets[-1])))


def _ranges(values: np.ndarray, starts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Joins ranges of an array; range i starts at starts[i] and becomes [offsets[i]:offsets[i + 1]] of the result."""
    joined = np.empty(offsets[-1], values.dtype)
    for first in range(0, len(starts), AT_ONCE):
        ends = offsets[first : first + AT_ONCE + 1]
        shifts = np.repeat(starts[first : first + AT_ONCE] - ends[:-1], np.diff(ends))
        joined[ends[0] : ends[-1]] = values[shifts + np.arange(ends[0], ends[-1])]
    return joined


@dataclass(frozen=True)
class Provenance:
    """Where the data comes from; printed at the start of a run and kept in its records.

    Attributes:
        source: Files, arrays in memory, or a generator.
        description: A description in words.
        files: (path, SHA-256 in hexadecimal) of every file read.
        digest: SHA-256 of the data before partitioning, by `rayfl.data.scenario_data`; sources leave it empty.
        notice: For generated data that stands in for real data: for which, why, and how to get the real data; the
            description begins with it.

    Example:
        >>> from rayfl.data import Provenance
        >>> Provenance("arrays", "sensor readings, held in memory").source
        'arrays'
    """

    source: Literal["files", "generated", "arrays"]
    description: str
    files: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    notice: str = ""


@dataclass(frozen=True, eq=False)
class ClientNames(Sequence[str]):
    """Names of all clients in two arrays that the processes of a node share, rather than one object per name.

    Attributes:
        text: [m] uint8, all names in UTF-8, concatenated.
        ends: [clients] int64, where each name ends.
    """

    text: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, client: int) -> str: ...

    @overload
    def __getitem__(self, client: slice) -> ClientNames: ...

    def __getitem__(self, client: int | slice) -> str | ClientNames:
        """The name of one client, or the names of several.

        Raises:
            IndexError: There is no such client.
        """
        if isinstance(client, slice):
            return self.take(np.arange(len(self))[client])
        client = range(len(self))[client]  # counts negative numbers from the end
        start = self.ends[client - 1] if client else 0
        return self.text[start : self.ends[client]].tobytes().decode()

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same names in the same order."""
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    def take(self, clients: np.ndarray) -> ClientNames:
        """The names of some clients, in the order given."""
        lengths = np.diff(self.ends, prepend=0)[clients]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return ClientNames(_ranges(self.text, self.ends[clients] - lengths, offsets), offsets[1:])

    @staticmethod
    def of(names: Sequence[str] | np.ndarray) -> ClientNames:
        """Builds them from one name per client, or from an array of strings or integers."""
        if isinstance(names, ClientNames):
            return names
        texts, lengths = [b""], [np.empty(0, np.int64)]
        for first in range(0, len(names), AT_ONCE):
            block = names[first : first + AT_ONCE]
            encoded = [str(name).encode() for name in (block.tolist() if isinstance(block, np.ndarray) else block)]
            texts.append(b"".join(encoded))
            lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        return ClientNames(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(np.concatenate(lengths)))


@dataclass(frozen=True)
class NaturalClients:
    """The clients that the data itself defines, such as the writers of FEMNIST.

    Attributes:
        names: One per client; kept as `ClientNames`, which equals the names that were given.
        train: Their training samples.
        test: Their test samples; None if the data does not assign test samples to clients.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import NaturalClients, Shards
        >>> owner = np.array([0, 0, 1])
        >>> writers = NaturalClients(("ada", "bob"), Shards.by_owner(owner, 2), test=None)
        >>> writers.train.sizes
        array([2, 1])
    """

    names: Sequence[str]
    train: Shards
    test: Shards | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", ClientNames.of(self.names))

    def subset(self, clients: np.ndarray) -> NaturalClients:
        """Some of the clients, renumbered 0, 1, ... in the order given."""
        names, test = ClientNames.of(self.names).take(clients), self.test
        return NaturalClients(names, self.train.subset(clients), None if test is None else test.subset(clients))


@dataclass(frozen=True)
class Materialised:
    """The partition by which the clients of prepared data were made, and samples ordered.

    Attributes:
        folder: The prepared folder.
        partition: The partition, with all options.
        clients: The number of clients.
        seed: The seed of the data.
        num_classes: The number of classes; None if labels are not classes.
        named: Whether the clients have names of their own.
    """

    folder: str
    partition: Named
    clients: int
    seed: int
    num_classes: int | None
    named: bool


@dataclass(frozen=True)
class Dataset:
    """A data set as its source returns it, before it is partitioned among clients.

    Attributes:
        name: Used in messages and records.
        train: All training samples.
        test: All test samples.
        num_classes: Number of classes; None if labels are not classes. Class labels [n] are in 0..num_classes-1. For
            vectors or maps of classes, the number of classes of one entry.
        provenance: Where the data comes from.
        natural: The natural clients of the data, if it has any.
        tests: Additional test sets by name, such as other domains; of the same kind as `test`.
        class_numbers: [num_classes] original numbers of the classes, if `data.classes` selected some of them.
        chosen: The selections by `data.classes` and `data.owners`, in words.
        materialised: How prepared data was partitioned; its natural clients are those of this partition.

    Raises:
        DataError: Samples are inconsistent, or no network could take them.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Dataset, Provenance, Samples
        >>> rng = np.random.default_rng(0)
        >>> def samples(n):
        ...     return Samples(rng.integers(0, 256, (n, 8, 8, 1), dtype=np.uint8), rng.integers(0, 2, n))
        >>> def source():
        ...     provenance = Provenance("generated", "noise in two classes")
        ...     return Dataset("noise", samples(60), samples(20), num_classes=2, provenance=provenance)
        >>> len(source().train)
        60
    """

    name: str
    train: Samples
    test: Samples
    num_classes: int | None
    provenance: Provenance
    natural: NaturalClients | None = None
    tests: Mapping[str, Samples] = field(default_factory=dict)
    class_numbers: np.ndarray | None = None
    chosen: tuple[str, ...] = ()
    materialised: Materialised | None = None

    def __post_init__(self) -> None:
        check_dataset(self)

    @property
    def parts(self) -> dict[str, Samples]:
        """All sets of samples by name."""
        return {"train": self.train, "test": self.test, **self.tests}
