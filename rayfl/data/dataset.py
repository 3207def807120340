"""What a source of data returns: samples, and, where the data has them, the clients they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rayfl.data.checking import check_dataset
from rayfl.data.inputs import are_images, taken


@dataclass(frozen=True)
class Samples:
    """Inputs and labels, row by row.

    Attributes:
        x: [n, height, width, channels] uint8 for images (0..255); anything else is given to the model as it is,
            floating point as float32, integers as int64. Inputs by name (`Fields`) reach the network as keyword
            arguments; those that differ in length (`Ragged`) are put together by `data.collate`.
        y: [n] class labels, int64 or a smaller integer; or other labels: integers or floating point numbers, [n],
            vectors [n, k] or maps [n, height, width].

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Samples
        >>> images = np.zeros((5, 28, 28, 1), np.uint8)
        >>> samples = Samples(images, np.array([3, 1, 4, 1, 5]))
        >>> samples.take(np.array([2, 0])).y
        array([4, 3])
    """

    x: Any
    """One of `rayfl.data.inputs.Inputs`; who indexes it knows which."""
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: np.ndarray) -> Samples:
        """Some of the samples, in the order of `rows`; texts and pieces of different lengths share their memory."""
        return Samples(taken(self.x, rows), self.y[rows])


def has_label_maps(samples: Samples) -> bool:
    """Whether every pixel of an image has a label."""
    return samples.y.ndim == 3 and are_images(samples.x) and samples.y.shape[1:] == samples.x.shape[1:3]


@dataclass(frozen=True)
class Shards:
    """Rows by client: client c owns `rows[offsets[c]:offsets[c + 1]]`. 4 or 8 bytes a row and 8 a client.

    Attributes:
        rows: [n] int32 or int64, each row at most once.
        offsets: [clients + 1] int64, from 0 to n, not decreasing.

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

    @staticmethod
    def by_owner(owner: np.ndarray, clients: int) -> Shards:
        """Shards from the owner of every row, [n] integers in 0..clients-1; rows keep their order."""
        rows = np.argsort(owner, kind="stable").astype(np.int64)
        offsets = np.zeros(clients + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=clients), out=offsets[1:])
        return Shards(rows, offsets)

    def subset(self, clients: np.ndarray) -> Shards:
        """The shards of some clients, renumbered 0, 1, ... in the order given."""
        rows = [self[int(client)] for client in clients]
        offsets = np.zeros(len(clients) + 1, np.int64)
        np.cumsum([len(r) for r in rows], out=offsets[1:])
        return Shards(np.concatenate(rows) if rows else np.empty(0, np.int64), offsets)


@dataclass(frozen=True)
class Provenance:
    """Where the data came from; printed at the start of a run and kept with its records.

    Attributes:
        source: Files, arrays that a program holds, or a generator.
        description: What it is, in words.
        files: (path, SHA-256 in hexadecimal) of every file that was read.
        digest: SHA-256 of the data before it is partitioned, by `rayfl.data.digest`; sources leave it out.

    Example:
        >>> from rayfl.data import Provenance
        >>> Provenance("arrays", "sensor readings, held in memory").source
        'arrays'
    """

    source: Literal["files", "generated", "arrays"]
    description: str
    files: tuple[tuple[str, str], ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class NaturalClients:
    """The clients that the data itself names (the writers of FEMNIST).

    Attributes:
        names: One for each client.
        train: Their training samples.
        test: Their test samples; None where the data does not say whose they are.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import NaturalClients, Shards
        >>> owner = np.array([0, 0, 1])
        >>> writers = NaturalClients(("ada", "bob"), Shards.by_owner(owner, 2), test=None)
        >>> writers.train.sizes
        array([2, 1])
    """

    names: tuple[str, ...]
    train: Shards
    test: Shards | None


@dataclass(frozen=True)
class Dataset:
    """A data set as its source returns it, before it is partitioned among clients.

    Attributes:
        name: For messages and records.
        train: All training samples.
        test: All test samples.
        num_classes: How many classes the labels count; None where they are no classes. Labels [n] then lie in
            0..num_classes-1. Of vectors or maps of classes, it is the number of classes of one entry.
        provenance: Where the data came from.
        natural: The data's own clients, where it has any.
        tests: Further test sets by name, such as another domain's; of the same kind as `test`.
        class_numbers: [num_classes] the numbers that the classes have at the source, where `data.classes` chose some.
        chosen: What `data.classes` and `data.owners` chose, in words.

    Raises:
        DataError: Samples that do not fit together, or that no network could take.

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

    def __post_init__(self) -> None:
        check_dataset(self)

    @property
    def parts(self) -> dict[str, Samples]:
        """All sets of samples by name."""
        return {"train": self.train, "test": self.test, **self.tests}
