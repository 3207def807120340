"""Inputs and labels of prepared data as arrays: every process maps the files itself, and checks what it reads."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.data.indexed_rows import NumberedRows, numbers_at
from rayfl.data.inputs import AsArray, Pieces
from rayfl.data.prepared.manifest import AGAIN, Column, Manifest, StoredFile, read_manifest
from rayfl.data.prepared.node_cache import node_cache
from rayfl.errors import DataError
from rayfl.files import reading

OPEN_FRAGMENTS = 128
"""Fragments that a process keeps mapped; each takes a file descriptor."""

NOTED_EVERY_S = 60.0
"""How often a process tells the node's cache, at most, that it uses a copy."""


class StoredRows:
    """The fragments of a set, whose rows are counted through all record batches.

    Args:
        folder: The prepared folder.
        manifest: Its manifest.
        name: The set.
    """

    def __init__(self, folder: Path, manifest: Manifest, name: str) -> None:
        self._folder, self._fragments = folder, manifest.sets[name].fragments
        blocks = [(number, *block) for number, fragment in enumerate(self._fragments) for block in fragment.blocks]
        table = np.array(blocks, np.int64)
        self._fragment, self._rows, self._starts = table[:, 0], table[:, 1], table[:, 2:]
        self._firsts = np.concatenate([[0], np.cumsum(self._rows)])
        self._columns = manifest.columns
        self._is_checked = [np.zeros(fragment.chunks, np.bool_) for fragment in self._fragments]
        self._mapped = lru_cache(OPEN_FRAGMENTS)(self._map)
        self._noted = np.zeros(len(self._fragments))

    def fragments_of(self, rows: np.ndarray) -> np.ndarray:
        """[n] int64: the number of the fragment in which each row lies."""
        found: np.ndarray = self._fragment[np.searchsorted(self._firsts, rows, side="right") - 1]
        return found

    def gather(self, column: int, rows: np.ndarray) -> np.ndarray:
        """Copies of some rows of a column of equal rows: [rows, ...]."""
        facts, place = self._columns[column], self._place(column)
        gathered = np.empty((len(rows), *facts.shape), np.dtype(facts.dtype))
        for block, here, local in self._by_block(rows):
            start = int(self._starts[block, place])
            gathered[here] = self._values(block, start, int(self._rows[block]), facts, local.min(), local.max() + 1)[
                local
            ]
        return gathered

    def pieces(self, column: int, rows: np.ndarray) -> list[np.ndarray]:
        """Copies of some rows of a ragged column."""
        facts, place = self._columns[column], self._place(column)
        offsets_of = Column(name="", dtype="int64", shape=(), ragged=False)
        found: list[np.ndarray] = [np.empty(0)] * len(rows)
        for block, here, local in self._by_block(rows):
            first, values = (int(start) for start in self._starts[block, place : place + 2])
            offsets = self._values(block, first, int(self._rows[block]) + 1, offsets_of, local.min(), local.max() + 2)
            starts, stops = offsets[local], offsets[local + 1]
            if starts.min() < 0 or (stops < starts).any():
                raise self._outside(block)
            last = int(stops.max())
            inner = self._values(block, values, last, facts, int(starts.min()), last)
            for row, start, stop in zip(np.flatnonzero(here), starts, stops, strict=True):
                found[row] = inner[start:stop].copy()
        return found

    def _place(self, column: int) -> int:
        return sum(1 + before.ragged for before in self._columns[:column])

    def _by_block(self, rows: np.ndarray) -> Any:
        """Yields the number of a block, which of the rows lie in it, and their numbers there."""
        of_block = np.searchsorted(self._firsts, rows, side="right") - 1
        for block in np.unique(of_block).tolist():
            here = of_block == block
            yield block, here, rows[here] - self._firsts[block]

    def _values(self, block: int, start: int, number: int, facts: Column, first: int, stop: int) -> np.ndarray:
        """A view of the values of a block from `start` on, of which rows `first` to `stop` are checked."""
        fragment, item = int(self._fragment[block]), facts.item_bytes
        content = self._mapped(fragment)
        self._note_use(fragment)
        end = start + number * item
        if end > len(content):
            raise self._outside(block)
        stored, is_checked = self._fragments[fragment], self._is_checked[fragment]
        for chunk in stored.chunks_of(start + int(first) * item, start + int(stop) * item):
            if not is_checked[chunk]:
                stored.check(self._folder / stored.file, content, chunk)
                is_checked[chunk] = True
        values = content[start:end].view(facts.dtype)
        return values.reshape(number, *facts.shape)

    def _map(self, number: int) -> np.ndarray:
        """[bytes] uint8: a fragment, from the node's cache if there is one, whose copies are checked."""
        stored, cache = self._fragments[number], node_cache()
        copied = None if cache is None else cache.opened(self._folder, stored, _bytes_of)
        if copied is not None:
            self._is_checked[number][:] = True
        return stored.mapped(self._folder) if copied is None else copied

    def _note_use(self, number: int) -> None:
        """Tells the node's cache now and then which copies are in use, since mapped files do not."""
        now = time.monotonic()
        if now - self._noted[number] > NOTED_EVERY_S and (cache := node_cache()) is not None:
            self._noted[number] = now
            cache.used(self._fragments[number])

    def _outside(self, block: int) -> DataError:
        file = self._folder / self._fragments[int(self._fragment[block])].file
        return DataError(f"{file}: the manifest names values outside it; {AGAIN}")


@lru_cache(maxsize=64)
def _stored_rows(folder: str, manifest: str, name: str) -> StoredRows:
    return StoredRows(Path(folder), _manifest(folder, manifest), name)


@lru_cache(maxsize=8)
def _manifest(folder: str, digest: str) -> Manifest:
    return read_manifest(Path(folder), digest)[0]


@dataclass(frozen=True)
class _Selected(NumberedRows):
    """Rows of a column of a prepared set, as the folder and their numbers: nothing else is sent to other processes.

    Attributes:
        folder: The prepared folder, at the same path on every node.
        manifest: The SHA-256 of its manifest.
        name: The set.
        column: The number of the column.
        facts: Its dtype and shape.
        rows: The selected rows; a range if they are consecutive.
    """

    folder: str
    manifest: str
    name: str
    column: int
    facts: Column
    rows: range | np.ndarray

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.facts.dtype)

    def reopen(self) -> None:
        _manifest(self.folder, self.manifest)

    def fragments_of(self, rows: np.ndarray) -> np.ndarray:
        return self._stored().fragments_of(numbers_at(self.rows, rows))

    def _stored(self) -> StoredRows:
        return _stored_rows(self.folder, self.manifest, self.name)


@dataclass(frozen=True)
class FragmentRows(_Selected, AsArray):
    """Rows of one shape, with the interface of an array, read when they are accessed."""

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.facts.shape

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Copies of some rows: [rows, ...]."""
        return self._stored().gather(self.column, numbers_at(self.rows, rows))


@dataclass(frozen=True)
class FragmentPieces(_Selected, Pieces):
    """Rows that differ in their first dimension, read when they are accessed."""

    @property
    def inner_shape(self) -> tuple[int, ...]:
        return self.facts.shape

    def __getitem__(self, rows: np.ndarray | slice) -> list[np.ndarray]:
        """Copies of some rows."""
        return self._stored().pieces(self.column, numbers_at(self.rows, rows))


class MappedLabels(np.ndarray):
    """The labels of a prepared set: an array whose memory is a file, which other processes map themselves.

    Attributes:
        place: Folder, digest of its manifest, and set; None for a part of the labels.
    """

    place: tuple[str, str, str] | None = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.asarray(self).__reduce_ex__(protocol) if self.place is None else (mapped_labels, self.place)


@lru_cache(maxsize=64)
def mapped_labels(folder: str, manifest: str, name: str) -> MappedLabels:
    """Maps the labels of a set, once per process, after it has compared them with their digests.

    Raises:
        DataError: They are missing or damaged, or are not labels of so many samples.
    """
    root, one = Path(folder), _manifest(folder, manifest).sets[name]
    path, cache = root / one.labels.file, node_cache()
    with reading(path, "as labels"):
        labels = None if cache is None else cache.opened(root, one.labels, _labels_of)
        if labels is None:
            check_file(root, one.labels)
            labels = _labels_of(path)
    if not labels.ndim or len(labels) != one.rows or labels.dtype.kind not in "uif":
        raise DataError(f"{path}: holds {labels.dtype}{list(labels.shape)} for {one.rows} samples; {AGAIN}")
    labels.place = folder, manifest, name
    return labels


def _labels_of(path: Path) -> MappedLabels:
    labels: MappedLabels = np.load(path, mmap_mode="r", allow_pickle=False).view(MappedLabels)
    return labels


def _bytes_of(path: Path) -> np.ndarray:
    return np.asarray(np.memmap(path, np.uint8, "r"))


def check_file(folder: Path, stored: StoredFile) -> None:
    """Compares a whole file with its digests.

    Raises:
        DataError: It is missing, cut short or damaged; names it.
    """
    content = stored.mapped(folder)
    for chunk in range(stored.chunks):
        stored.check(folder / stored.file, content, chunk)
