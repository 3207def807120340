"""Rows of a memory-mapped Arrow file that stay on disk, for data larger than memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from rayfl.data.formats.columns import column_values
from rayfl.data.inputs import Ragged, spaced
from rayfl.errors import DataError
from rayfl.reading import reading


@dataclass(frozen=True)
class MappedRows:
    """Rows of one column of an Arrow IPC file, with the interface of an array, read when they are accessed.

    Every process maps the file itself, so it must have the same path and content on every node.

    Attributes:
        file: Path of the file.
        file_bytes: Its size, to detect that the file was replaced.
        tried: SHA-256 of some rows of the column, evenly spaced over the file, for the same reason.
        column: A column of numbers, or of lists of one length, nested once per dimension of a row.
        rows: [n] int64, the selected rows of the file.
        shape: (n, ...).
        dtype: The dtype of the values.
    """

    file: str
    file_bytes: int
    tried: str
    column: str
    rows: np.ndarray
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Copies of some rows: [rows, ...]."""
        wanted = self.rows[rows]
        parts = _mapped(self.file, self.file_bytes, self.column)
        firsts = np.cumsum([0, *map(len, parts)])
        found = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        of_part = np.searchsorted(firsts, wanted, side="right") - 1
        for number in np.unique(of_part):
            here = of_part == number
            found[here] = parts[number][wanted[here] - firsts[number]]
        return found

    def reopen(self) -> None:
        """See `rayfl.data.inputs.Reopenable`."""
        if _digest(_mapped(self.file, self.file_bytes, self.column)) != self.tried:
            raise DataError(
                f"{self.file}: column '{self.column}' holds other values here than where the run started; copy the "
                "same file to every node"
            )

    def take(self, rows: np.ndarray) -> MappedRows:
        """Some rows of the same file, without reading them."""
        kept = self.rows[rows]
        return replace(self, rows=kept, shape=(len(kept), *self.shape[1:]))

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """All rows, read into memory; for `numpy.asarray`."""
        return self[:].astype(dtype or self.dtype, copy=False)

    @staticmethod
    def of(file: Path, column: str, rows: np.ndarray) -> MappedRows:
        """Selects rows of a file.

        Raises:
            DataError: The file cannot be read or mapped, or the rows of the column differ in shape.
        """
        size = file.stat().st_size
        parts = _mapped(str(file), size, column)
        shape = (len(rows), *parts[0].shape[1:])
        return MappedRows(str(file), size, _digest(parts), column, rows, shape, parts[0].dtype)


def _digest(parts: Sequence[np.ndarray]) -> str:
    digest, ends = hashlib.sha256(), np.cumsum([*map(len, parts)])
    for row in spaced(int(ends[-1])):
        part = int(np.searchsorted(ends, row, side="right"))
        digest.update(parts[part][row - ends[part]].tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _mapped(file: str, file_bytes: int, column: str) -> tuple[np.ndarray, ...]:
    """The column in every record batch, without a copy."""
    with reading(file, "as an Arrow file"):
        memory = pa.memory_map(file)
        if memory.size() != file_bytes:
            raise DataError(f"{file}: has {memory.size()} bytes, not {file_bytes}: it was replaced or changed")
        whole = memory.read_buffer()
        reader = pa.ipc.open_file(whole)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        for batch in batches:
            batch.column(column).validate(full=True)  # otherwise invalid offsets would be followed
    where = f"{file}: column '{column}'"
    parts: list[np.ndarray] = []
    for batch in batches:
        values = column_values(batch.column(column), where, as_float32=False)
        if isinstance(values, Ragged):
            raise DataError(f"{where} has lists of different lengths; rows that stay on disk must have one shape")
        address = values.__array_interface__["data"][0]
        if len(values) and not whole.address <= address < whole.address + whole.size:
            raise DataError(f"{where} is compressed or boolean; write it uncompressed, as numbers")
        if parts and values.shape[1:] != parts[0].shape[1:]:
            raise DataError(f"{where} has lists of different lengths; rows that stay on disk must have one shape")
        parts.append(values)
    return tuple(parts)
