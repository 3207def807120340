"""The values of Arrow columns as arrays: numbers, lists and image files, collected chunk by chunk without a copy.

A column read from a file is decoded a few rows at a time, straight into the array in which its values stay.
"""

from __future__ import annotations

import io
from collections import Counter
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from PIL import Image

from rayfl.data.checks import check_range
from rayfl.data.formats.image_files import FORMATS, in_eight_bits
from rayfl.data.formats.parquet import fixed_bytes
from rayfl.data.formats.scratch import reserved, resized
from rayfl.data.inputs import Ragged
from rayfl.errors import DataError
from rayfl.files import reading


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type are single numbers."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def number_dtype(kind: pa.DataType) -> np.dtype:
    """The dtype of the values of a column of numbers."""
    return np.dtype(np.float32 if pt.is_float64(kind) else kind.to_pandas_dtype())


class ColumnValues:
    """The values of a column, whose chunks are added in order.

    Floating point numbers of more than 32 bits become float32, the type that networks receive. Binary columns hold
    image files of one size: [n, height, width, channels] uint8, with one channel if all are grey, otherwise three.

    Args:
        where: The column, for messages.
        rows: The expected number of rows, for which memory is reserved.
        into: [rows] or a column of a matrix, to hold single numbers.
        is_view: Whether values are a view of the memory of the only chunk, in its own type.
    """

    def __init__(self, where: str, rows: int, into: np.ndarray | None = None, is_view: bool = False) -> None:
        self._where, self._expected, self._is_view = where, rows, is_view
        self._array = into
        self._filled = self._rows = 0
        self._nulls: Counter[int] = Counter()
        self._lists: list[_Lists] = []
        self._unsuitable: pa.DataType | None = None
        self._sizes: set[tuple[int, int]] = set()
        self._extremes: list[Any] = []

    def add(self, array: pa.Array) -> None:
        """Adds the next chunk.

        Raises:
            DataError: An image cannot be read.
        """
        self._rows += len(array)
        depth = level = 0
        while True:
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            kind = array.type
            if array.null_count:
                self._nulls[level] += array.null_count
                return
            if pt.is_struct(kind) and "bytes" in {field.name for field in kind}:  # images as stored by `datasets`
                array = array.field("bytes")
            elif pt.is_fixed_size_list(kind) or pt.is_list(kind) or pt.is_large_list(kind):
                if depth == len(self._lists):
                    self._lists.append(_Lists(keeps_lengths=not depth))
                self._lists[depth].add(array)
                array, depth = array.flatten(), depth + 1
            else:
                break
            level += 1
        self._add_values(array)

    def values(self) -> np.ndarray | Ragged:
        """All values: [n] numbers, [n, k, ...] from lists of one length, or pieces of different lengths.

        Raises:
            DataError: The column has empty values or values too large for float32, or holds neither numbers nor images.
        """
        where = self._where
        if self._nulls:
            raise DataError(f"{where} has {self._nulls[min(self._nulls)]} empty values")
        if self._unsuitable is not None:
            raise DataError(f"{where} is {self._unsuitable}, but must hold numbers or lists of numbers")
        if len(self._sizes) > 1:
            sizes = sorted(self._sizes)[:2]
            raise DataError(f"{where}: images have {len(self._sizes)} sizes, such as {sizes}, but must have one")
        if self._extremes:
            check_range(np.array(self._extremes), where)
        values = np.empty(0, np.uint8) if self._array is None else self._array
        if self._filled < len(values):
            values = resized(values, self._filled)
        for lists in reversed(self._lists[1:]):
            if lists.length is None:
                raise DataError(f"{where} has lists of lists of different lengths; only the outer lists may differ")
            values = values.reshape(lists.number, lists.length, *values.shape[1:])
        if not self._lists:
            return values
        outer = self._lists[0]
        if outer.length is None:
            lengths = np.concatenate(outer.lengths)
            return Ragged(values, np.cumsum(lengths) - lengths, lengths)
        return values.reshape(outer.number, outer.length, *values.shape[1:])

    def _add_values(self, array: pa.Array) -> None:
        kind = array.type
        if pt.is_binary(kind) or pt.is_large_binary(kind):
            if len(pixels := self._decoded(array)):
                self._append(pixels)
        elif pt.is_fixed_size_binary(kind):
            self._append(fixed_bytes(pa.chunked_array([array])))
        elif is_number(kind):
            numbers: np.ndarray = array.to_numpy(zero_copy_only=False)
            if self._is_view:
                self._append(numbers)
                return
            if numbers.size and numbers.dtype in (np.float64, np.uint64):
                now = [numbers.min(), numbers.max(), *self._extremes]
                self._extremes = [np.min(now), np.max(now)]
            with np.errstate(over="ignore"):  # reported with the largest value of the whole column
                self._append(numbers.astype(np.float32) if numbers.dtype == np.float64 else numbers)
        else:
            self._unsuitable = kind

    def _decoded(self, array: pa.Array) -> np.ndarray:
        """[n, height, width, channels] uint8 from image files; empty if sizes differ."""
        images = []
        names = [f"{self._where}, row {row}" for row in range(self._filled, self._filled + len(array))]
        for name, content in zip(names, array.to_pylist(), strict=True):
            with reading(name, "as an image"):
                image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
                image.load()
            images.append(image)
        self._sizes.update(image.size for image in images)
        if len(self._sizes) != 1:
            return np.empty((0, 0, 0, 1), np.uint8)
        mode: Literal["L", "RGB"] = "L" if all(image.mode in ("1", "L") for image in images) else "RGB"
        pixels = np.stack(
            [np.asarray(in_eight_bits(image, mode, name)) for image, name in zip(images, names, strict=True)]
        )
        return pixels[..., None] if mode == "L" else pixels

    def _append(self, values: np.ndarray) -> None:
        end = self._filled + len(values)
        if self._is_view:
            self._array, self._filled = values, end
            return
        expected = max(end, -(-end * self._expected // max(1, self._rows)))
        if self._array is None:
            self._array = reserved((expected, *values.shape[1:]), values.dtype)
        if self._sizes and values.shape[-1] > self._array.shape[-1]:  # colours after grey images
            self._array = np.repeat(self._array, values.shape[-1], axis=-1)
        if end > len(self._array):
            self._array = resized(self._array, expected)
        self._array[self._filled : end] = values
        self._filled = end


class _Lists:
    """The lists at one depth of a column.

    Attributes:
        number: Number of lists.
        lengths: [number] int64 in chunks, the length of each, if they are kept.
    """

    def __init__(self, keeps_lengths: bool) -> None:
        self.number, self.lengths = 0, list[np.ndarray]()
        self._keeps_lengths, self._distinct = keeps_lengths, np.empty(0, np.int64)

    @property
    def length(self) -> int | None:
        """Length of all lists; None if they differ, or if there are none."""
        return int(self._distinct[0]) if len(self._distinct) == 1 else None

    def add(self, array: pa.Array) -> None:
        self.number += len(array)
        if pt.is_fixed_size_list(array.type):
            self._distinct = np.array([array.type.list_size])
            return
        lengths = array.value_lengths().to_numpy().astype(np.int64)
        if self._keeps_lengths:
            self.lengths.append(lengths)
        self._distinct = np.union1d(self._distinct, lengths)[:2]
