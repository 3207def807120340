"""What a source of data returns: samples, and, where the data has them, the clients they come from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rayfl.errors import DataError

MAX_CLASSES = 1_000_000
"""More are taken for a mistake: labels that were meant to be something else."""


@dataclass(frozen=True)
class TextWindows:
    """Inputs [n, length] uint8 that are windows of one text: what numpy knows of an array, cut out when asked for.

    Overlapping windows of a text share its memory: a window costs its start.

    Attributes:
        text: [m] uint8, symbols.
        starts: [n] int32 or int64, where in the text each window begins.
        length: Symbols per window.

    Raises:
        DataError: A window that is not all inside the text.
    """

    text: np.ndarray
    starts: np.ndarray
    length: int

    dtype = np.dtype(np.uint8)
    ndim = 2

    def __post_init__(self) -> None:
        last = len(self.text) - self.length
        if len(self.starts) and not 0 <= self.starts.min() <= self.starts.max() <= last:
            raise DataError(
                f"windows of {self.length} symbols start at {self.starts.min()} to {self.starts.max()}; in a text of "
                f"{len(self.text)} symbols they start at 0 to {last}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.starts), self.length

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Some windows, written out: [rows, length] uint8."""
        every_window = np.lib.stride_tricks.sliding_window_view(self.text, self.length)
        windows: np.ndarray = every_window[self.starts[rows]]
        return windows

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """All windows, written out; for `numpy.asarray`."""
        return self[:].astype(dtype or self.dtype, copy=False)


@dataclass(frozen=True)
class Samples:
    """Inputs and labels, row by row.

    Attributes:
        x: [n, height, width, channels] uint8 for images (0..255); anything else is given to the model as it is,
            floating point as float32, integers as int64.
        y: [n] class labels, int64 or a smaller integer.
    """

    x: np.ndarray | TextWindows
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: np.ndarray) -> Samples:
        """Some of the samples, in the order of `rows`; the text of windows is shared, not copied."""
        if isinstance(self.x, TextWindows):
            return Samples(replace(self.x, starts=self.x.starts[rows]), self.y[rows])
        return Samples(self.x[rows], self.y[rows])


@dataclass(frozen=True)
class Shards:
    """Rows by client: client c owns `rows[offsets[c]:offsets[c + 1]]`. 4 or 8 bytes a row and 8 a client.

    Attributes:
        rows: [n] int32 or int64, each row at most once.
        offsets: [clients + 1] int64, from 0 to n, not decreasing.
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
    """Where the data came from; printed at the start of a run and kept with its records."""

    source: Literal["files", "generated", "arrays"]
    description: str
    files: tuple[tuple[str, str], ...] = ()
    """(path, sha256 in hexadecimal) of every file that was read."""


@dataclass(frozen=True)
class NaturalClients:
    """The clients that the data itself names (the writers of FEMNIST): same clients in training and test."""

    names: tuple[str, ...]
    train: Shards
    test: Shards


@dataclass(frozen=True)
class Dataset:
    """A data set as its source returns it, before it is partitioned among clients."""

    name: str
    train: Samples
    test: Samples
    num_classes: int
    provenance: Provenance
    natural: NaturalClients | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.num_classes <= MAX_CLASSES:
            raise DataError(f"{self.name}: has {self.num_classes} classes; allowed are 1 to {MAX_CLASSES}")
        for split, samples in (("train", self.train), ("test", self.test)):
            if len(samples.x) != len(samples.y):
                raise DataError(f"{self.name}: {split} has {len(samples.x)} inputs but {len(samples.y)} labels")
            if not len(samples):
                raise DataError(f"{self.name}: {split} is empty")
            if samples.y.ndim != 1 or not np.issubdtype(samples.y.dtype, np.integer):
                raise DataError(
                    f"{self.name}: {split} labels are {samples.y.dtype}{list(samples.y.shape)}, not a vector of "
                    "integers"
                )
            low, high = int(samples.y.min()), int(samples.y.max())
            if low < 0 or high >= self.num_classes:
                raise DataError(
                    f"{self.name}: {split} labels run from {low} to {high}, allowed are 0 to {self.num_classes - 1}"
                )
        for split, samples in (("train", self.train), ("test", self.test)):
            if samples.x.dtype.kind not in "uif" or not samples.x.dtype.isnative:
                raise DataError(
                    f"{self.name}: {split} inputs are {samples.x.dtype}; "
                    "allowed are integers and floating point numbers in this machine's byte order"
                )
            x = samples.x
            floats = isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size > 0
            if floats and not np.isfinite([np.min(x), np.max(x)]).all():
                raise DataError(f"{self.name}: {split} inputs hold values that are not finite (NaN or infinity)")
        kinds = [f"{list(part.x.shape[1:])} {part.x.dtype}" for part in (self.train, self.test)]
        if kinds[0] != kinds[1]:
            raise DataError(f"{self.name}: train inputs are {kinds[0]}, test inputs {kinds[1]}")
        if self.train.x.dtype == np.uint8 and self.train.x.ndim == 3:
            raise DataError(f"{self.name}: images are [n, height, width, channels]; {kinds[0]} lacks the channels")
