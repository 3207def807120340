"""Reads samples from columns of an Arrow table: numbers, lists, class names, owners and splits.

Rows of a memory-mapped Arrow file stay on disk, for data larger than memory.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from PIL import Image
from pydantic import Field

from rayfl.config.registry import nearest
from rayfl.data.checks import check_range, check_values
from rayfl.data.formats.image_files import FORMATS, in_eight_bits
from rayfl.data.formats.parquet import fixed_bytes, sorted_by_name
from rayfl.data.inputs import Fields, Inputs, Ragged, spaced, taken
from rayfl.errors import DataError, ScenarioError
from rayfl.files import reading
from rayfl.streams import stream

Name = Annotated[str, Field(min_length=1)]
InputColumns = Name | Annotated[tuple[Name, ...], Field(min_length=1)] | Annotated[dict[str, Name], Field(min_length=1)]
"""One column; several numeric columns, joined to a vector; or one column per argument of the network's `forward`."""

LabelColumns = Name | Annotated[tuple[Name, ...], Field(min_length=1)]
"""One column, or several numeric columns, joined to a vector."""

Share = Annotated[float, Field(gt=0, lt=1)]

TEST_SHARE = 0.1


@dataclass(frozen=True)
class Columns:
    """The roles of columns.

    Attributes:
        inputs: The inputs.
        label: The labels. Strings become classes, numbered in sorted order.
        owner: The owner of each sample, its natural client.
        split: The set of each sample: "train", "test", or the name of another test set.
        test_share: Without `split`, the share of samples drawn at random for testing.
    """

    inputs: InputColumns
    label: LabelColumns
    owner: str | None = None
    split: str | None = None
    test_share: float | None = None

    def __post_init__(self) -> None:
        if self.split and self.test_share is not None:
            raise ScenarioError(f"data.options.test_share: column '{self.split}' already splits the data; leave it out")


def samples_of(table: pa.Table, columns: Columns, seed: int, where: str) -> dict[str, tuple[Any, ...]]:
    """Reads the sets of a table by name, in the form that `dataset_of_arrays` takes.

    Args:
        table: One row per sample.
        columns: The columns to read.
        seed: The seed of the data, for drawing test samples if no column defines them.
        where: The table, for messages.

    Raises:
        DataError: A column is missing, has empty values or is not numeric, the split lacks "train" or "test", or there
            are no rows.
    """
    if not len(table):
        raise DataError(f"{where}: has no rows")
    x, y = _inputs(table, columns.inputs, where), _labels(table, columns.label, where)
    owner = _texts_or_integers(table, columns.owner, where) if columns.owner else None
    every = (x, y) if owner is None else (x, y, owner)
    parts = _split(table, columns, seed, where)
    sets = {}
    for name, rows in parts.items():
        arrays = every if name in ("train", "test") else every[:2]
        sets[name] = tuple(taken(values, rows) for values in arrays)
    return sets


def column_values(column: pa.ChunkedArray | pa.Array, where: str, as_float32: bool = True) -> np.ndarray | Ragged:
    """The values of a column: [n] numbers, [n, k, ...] from lists of one length, or pieces of different lengths.

    Binary columns hold image files of one size: [n, height, width, channels] uint8.

    Floating point numbers of more than 32 bits become float32, the type that networks receive, unless `as_float32` is
    False; then numbers are views of the memory of the column.

    Raises:
        DataError: The column has empty values, or holds neither numbers nor images.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # for extension types in some versions
        array = pa.concat_arrays(array.chunks)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.null_count:
        raise DataError(f"{where} has {array.null_count} empty values")
    kind = array.type
    if pt.is_struct(kind) and "bytes" in {field.name for field in kind}:  # images as stored by `datasets`
        return column_values(array.field("bytes"), where, as_float32)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return _decoded(array, where)
    if pt.is_fixed_size_binary(kind):
        return fixed_bytes(pa.chunked_array([array]))
    if pt.is_fixed_size_list(kind):
        inner = _numbers(array.flatten(), where, as_float32)
        return inner.reshape(len(array), kind.list_size, *inner.shape[1:])
    if pt.is_list(kind) or pt.is_large_list(kind):
        lengths = array.value_lengths().to_numpy().astype(np.int64)
        inner = _numbers(array.flatten(), where, as_float32)
        if len(lengths) and (lengths == lengths[0]).all():
            return inner.reshape(len(array), int(lengths[0]), *inner.shape[1:])
        return Ragged(inner, np.cumsum(lengths) - lengths, lengths)
    if not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind)):
        raise DataError(f"{where} is {kind}, but must hold numbers or lists of numbers")
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    if as_float32 and values.dtype == np.float64:
        check_range(values, where)
        return values.astype(np.float32)
    return values


def _decoded(array: pa.Array, where: str) -> np.ndarray:
    """[n, height, width, channels] uint8 from image files: one channel if all are grey, otherwise three."""
    images = []
    for row, content in enumerate(array.to_pylist()):
        with reading(f"{where}, row {row}", "as an image"):
            image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
            image.load()
        images.append(image)
    sizes = {image.size for image in images}
    if len(sizes) > 1:
        raise DataError(f"{where}: images have {len(sizes)} sizes, such as {sorted(sizes)[:2]}, but must have one")
    mode: Literal["L", "RGB"] = "L" if all(image.mode in ("1", "L") for image in images) else "RGB"
    decoded = [in_eight_bits(image, mode, f"{where}, row {row}") for row, image in enumerate(images)]
    pixels = np.stack([np.asarray(image) for image in decoded])
    return pixels[..., None] if mode == "L" else pixels


def _numbers(array: pa.Array, where: str, as_float32: bool) -> np.ndarray:
    values = column_values(array, where, as_float32)
    if isinstance(values, Ragged):
        raise DataError(f"{where} has lists of lists of different lengths; only the outer lists may differ")
    return values


def _inputs(table: pa.Table, columns: InputColumns, where: str) -> Inputs:
    if isinstance(columns, Mapping):
        return Fields({name: _column(table, column, where) for name, column in columns.items()})
    return _column(table, columns, where) if isinstance(columns, str) else _vectors(table, columns, where)


def _labels(table: pa.Table, columns: LabelColumns, where: str) -> np.ndarray:
    if not isinstance(columns, str):
        return _vectors(table, columns, where)
    if _is_text(_found(table, columns, where).type):
        classes: np.ndarray = np.unique(_texts_or_integers(table, columns, where), return_inverse=True)[1]
        return classes
    values = _column(table, columns, where)
    if isinstance(values, Ragged):
        raise DataError(
            f"{where}: column '{columns}' has labels of different lengths, but all must have the same length"
        )
    return values


def _vectors(table: pa.Table, columns: Sequence[str], where: str) -> np.ndarray:
    parts = []
    for column in columns:
        values = _column(table, column, where)
        if isinstance(values, Ragged) or values.ndim != 1:
            raise DataError(f"{where}: column '{column}' has lists; only columns of single numbers can form a vector")
        parts.append(values)
    return np.stack(parts, axis=1)


def _column(table: pa.Table, name: str, where: str) -> np.ndarray | Ragged:
    values = column_values(_found(table, name, where), f"{where}: column '{name}'")
    check_values(values, f"{where}: column '{name}'")
    return values


def _found(table: pa.Table, name: str, where: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise DataError(f"{where}: has no column '{name}'; {nearest(name, table.column_names)}")
    return table[name]


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or (pt.is_dictionary(kind) and _is_text(kind.value_type))


def _texts_or_integers(table: pa.Table, name: str, where: str) -> np.ndarray:
    column = _found(table, name, where)
    if column.null_count:
        raise DataError(f"{where}: column '{name}' has {column.null_count} empty values")
    if not (_is_text(column.type) or pt.is_integer(column.type)):
        raise DataError(f"{where}: column '{name}' is {column.type}, but must hold strings or integers")
    if pt.is_integer(column.type):
        values: np.ndarray = column.to_numpy()
        return values
    names, places = sorted_by_name(column.cast(pa.string()))
    texts: np.ndarray = np.array(names)[places]
    return texts


def _split(table: pa.Table, columns: Columns, seed: int, where: str) -> dict[str, np.ndarray]:
    if columns.split:
        of_row = _texts_or_integers(table, columns.split, where).astype(str)
        names = np.unique(of_row)
        if not {"train", "test"} <= set(names):
            raise DataError(f"{where}: column '{columns.split}' has {', '.join(names)}, but needs 'train' and 'test'")
        return {str(name): np.flatnonzero(of_row == name) for name in names}
    share = TEST_SHARE if columns.test_share is None else columns.test_share
    number = max(1, round(share * len(table)))
    if number >= len(table):
        raise DataError(f"{where}: a test share of {share:g} leaves none of {len(table)} rows for training")
    order = stream(seed, "partition", 2).permutation(len(table))
    return {"train": np.sort(order[number:]), "test": np.sort(order[:number])}


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
        values = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        of_part = np.searchsorted(firsts, wanted, side="right") - 1
        for number in np.unique(of_part):
            here = of_part == number
            values[here] = parts[number][wanted[here] - firsts[number]]
        return values

    def reopen(self) -> None:
        """See `rayfl.data.inputs.Reopenable`."""
        if _digest(_mapped(self.file, self.file_bytes, self.column)) != self.tried:
            raise DataError(
                f"{self.file}: column '{self.column}' holds other values here than where the run started; copy the "
                "same file to every node"
            )

    def take(self, rows: np.ndarray) -> MappedRows:
        """Some rows of the same file, without reading them."""
        selected = self.rows[rows]
        return replace(self, rows=selected, shape=(len(selected), *self.shape[1:]))

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
