"""A fragment that is yet to be written: any process that reaches the source and the folder can write it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rayfl.data.indexed_rows import IndexedRows
from rayfl.data.inputs import Array, Fields, Inputs, Pieces, Ragged, TextWindows, named_parts, reopen
from rayfl.data.prepared.arrow_columns import places_in, written
from rayfl.data.prepared.manifest import Column, Fragment, StoredFile
from rayfl.files import atomic_write


@dataclass(frozen=True)
class Unwritten:
    """A fragment to write.

    Attributes:
        place: Its file in the folder.
        inputs: Its rows in their order, read when they are written.
        columns: The columns of the whole set.
        rows_at_once: Rows of a record batch; so many are in memory at a time.
    """

    place: str
    inputs: Inputs
    columns: Sequence[Column]
    rows_at_once: int

    def write(self, folder: Path) -> Fragment:
        """Writes the file, whose bytes depend on the rows alone, and describes it."""
        with atomic_write(folder / self.place) as temporary:
            written(temporary, self.columns, self._blocks())
            stored = StoredFile.of(temporary, self.place)
            return Fragment(**stored.model_dump(), blocks=places_in(temporary, self.columns))

    def _blocks(self) -> Iterator[list[Any]]:
        number = len(self.inputs)
        for start in range(0, number, self.rows_at_once):
            rows = np.arange(start, min(number, start + self.rows_at_once))
            yield [part[rows] for part in named_parts(self.inputs).values()]

    def sendable(self) -> Unwritten:
        """The same without rows of other fragments: values in memory are copied, others are still read from disk."""
        parts = {name: _sendable(part) for name, part in named_parts(self.inputs).items()}
        return replace(self, inputs=Fields(parts) if isinstance(self.inputs, Fields) else parts[""])

    def reopen(self) -> None:
        """Opens in this process what the rows are read from.

        Raises:
            DataError: The source has other data here than where the preparation was started.
        """
        reopen(self.inputs)


def _sendable(part: Array | Pieces) -> Array | Pieces:
    if isinstance(part, np.ndarray | IndexedRows | TextWindows):
        return np.ascontiguousarray(part[:])
    return Ragged.of(part[:]) if isinstance(part, Ragged) else part


Written = Generator[Fragment, None, None]


class WriteFragments(Protocol):
    """Writes fragments to a folder, and yields each once it is whole, in any order. Closing it ends the others."""

    def __call__(self, folder: Path, fragments: Iterable[Unwritten], /) -> Written: ...


def one_by_one(folder: Path, fragments: Iterable[Unwritten]) -> Written:
    """Writes fragments in this process."""
    for fragment in fragments:
        yield fragment.write(folder)
