"""Rows selected from an array by their numbers, without a copy: by client, of a split, or held out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rayfl.data.inputs import Array, AsArray, Fields, Inputs, Pieces


@dataclass
class SharedArray:
    """An array that several selections of its rows share, so that it can be moved for all of them."""

    array: np.ndarray


class NumberedRows:
    """Rows that are only selected, by their numbers, until they are accessed."""

    rows: range | np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: np.ndarray) -> Self:
        """Some of the rows, without a copy."""
        return replace(self, rows=numbers_at(self.rows, rows))  # type: ignore[type-var]


@dataclass(frozen=True)
class IndexedRows(NumberedRows, AsArray):
    """Rows of an array, which stay where they are: only their numbers are stored.

    Attributes:
        shared: The array, [m, ...].
        rows: [n] int32 or int64, the selected rows.
    """

    shared: SharedArray
    rows: np.ndarray

    @property
    def array(self) -> np.ndarray:
        return self.shared.array

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.array.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Copies of some rows: [rows, ...]."""
        values: np.ndarray = self.array[self.rows[rows]]
        return values


def selected(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """Some rows of any inputs, in the order of `rows`; arrays are shared instead of copied."""
    if isinstance(inputs, Fields):
        return Fields({name: _selected(part, rows) for name, part in inputs.arrays.items()})
    return _selected(inputs, rows)


def _selected(part: Array | Pieces, rows: np.ndarray) -> Array | Pieces:
    if not isinstance(part, np.ndarray):
        return part.take(rows)
    if len(rows) == len(part) and (rows == np.arange(len(rows))).all():
        return part
    return IndexedRows(SharedArray(part), rows.astype(row_numbers(len(part))))


def numbers_at(selected: range | np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    """Some of selected row numbers, as an array of them would be indexed.

    Args:
        selected: The selected rows; a range if they are consecutive.
        rows: Integers, a mask, or a slice.

    Raises:
        IndexError: There are fewer.
    """
    if isinstance(selected, np.ndarray):
        return np.asarray(selected[rows])
    if isinstance(rows, slice):
        part = selected[rows]
        return np.arange(part.start, part.stop, part.step)
    wanted = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    if len(wanted) and not -len(selected) <= wanted.min() <= wanted.max() < len(selected):
        raise IndexError(f"rows {wanted.min()} to {wanted.max()} of {len(selected)}")
    return np.asarray(selected.start + np.where(wanted < 0, wanted + len(selected), wanted))


def row_numbers(number: int) -> type[np.signedinteger[Any]]:
    """The dtype for numbers of so many rows: 4 bytes each if possible, since texts have millions of rows."""
    return np.int32 if number < 2**31 else np.int64
