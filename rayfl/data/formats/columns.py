"""Columns of an Arrow table as samples: numbers, lists of them, classes by name, owners and splits."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from PIL import Image
from pydantic import Field

from rayfl.data.formats.image_decoding import FORMATS
from rayfl.data.formats.parquet import fixed_bytes, sorted_by_name
from rayfl.data.inputs import Fields, Inputs, Ragged, taken
from rayfl.errors import DataError, ScenarioError
from rayfl.reading import reading
from rayfl.registry import nearest
from rayfl.streams import stream

Name = Annotated[str, Field(min_length=1)]
InputColumns = Name | Annotated[tuple[Name, ...], Field(min_length=1)] | Annotated[dict[str, Name], Field(min_length=1)]
"""One column; several of numbers, which make a vector; or a column for each argument of the network's `forward`."""

LabelColumns = Name | Annotated[tuple[Name, ...], Field(min_length=1)]
"""One column; or several of numbers, which make a vector."""

Share = Annotated[float, Field(gt=0, lt=1)]

TEST_SHARE = 0.1


@dataclass(frozen=True)
class Columns:
    """Which columns hold what.

    Attributes:
        inputs: The samples' inputs.
        label: Their labels. Text makes classes, numbered by sorted name.
        owner: Whose sample it is; these are the data's own clients.
        split: Says "train", "test", or the name of a further test set.
        test_share: Where there is no `split`: what is drawn at random to test on.
    """

    inputs: InputColumns
    label: LabelColumns
    owner: str | None = None
    split: str | None = None
    test_share: float | None = None

    def __post_init__(self) -> None:
        if self.split and self.test_share is not None:
            raise ScenarioError(f"data.options.test_share: column '{self.split}' splits the data already; leave it out")


def samples_of(table: pa.Table, columns: Columns, seed: int, where: str) -> dict[str, tuple[Any, ...]]:
    """Reads a table in parts by their names, as `dataset_of_arrays` takes them.

    Args:
        table: A row per sample.
        columns: Which of its columns are read.
        seed: The data's seed, of the test samples that are drawn where no column says which they are.
        where: The table, for messages.

    Raises:
        DataError: No such column, one with empty values or of a type that holds no numbers, a split without "train" or
            "test", or no rows.
    """
    if not len(table):
        raise DataError(f"{where}: has no rows")
    x, y = _inputs(table, columns.inputs, where), _labels(table, columns.label, where)
    owner = _texts_or_integers(table, columns.owner, where) if columns.owner else None
    every = (x, y) if owner is None else (x, y, owner)
    parts = _split(table, columns, seed, where)
    found = {}
    for name, rows in parts.items():
        kept = every if name in ("train", "test") else every[:2]
        found[name] = tuple(taken(values, rows) for values in kept)
    return found


def column_values(column: pa.ChunkedArray | pa.Array, where: str, as_float32: bool = True) -> np.ndarray | Ragged:
    """The values of a column: [n] numbers, [n, k, ...] from lists of one length, or pieces of different lengths.

    Binary columns hold image files of one size: [n, height, width, channels] uint8.

    Floating point numbers of more than 32 bits become float32, as which they would be given to a network, unless
    `as_float32` is False; then numbers are views of the column's memory.

    Raises:
        DataError: Empty values, or a type that holds neither numbers nor images.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of extension types, in some versions
        array = pa.concat_arrays(array.chunks)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.null_count:
        raise DataError(f"{where} has {array.null_count} empty values")
    kind = array.type
    if pt.is_struct(kind) and "bytes" in {field.name for field in kind}:  # images as `datasets` keeps them
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
        raise DataError(f"{where} is {kind}; numbers or lists of numbers are needed")
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values.astype(np.float32) if as_float32 and values.dtype == np.float64 else values


def _decoded(array: pa.Array, where: str) -> np.ndarray:
    """[n, height, width, channels] uint8 from image files: one channel if all are grey, else three."""
    images = []
    for row, content in enumerate(array.to_pylist()):
        with reading(f"{where}, row {row}", "as an image"):
            image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
            image.load()
        images.append(image)
    sizes = {image.size for image in images}
    if len(sizes) > 1:
        raise DataError(f"{where}: images are of {len(sizes)} sizes, such as {sorted(sizes)[:2]}; one size is needed")
    mode = "L" if all(image.mode in ("1", "L") for image in images) else "RGB"
    pixels = np.stack([np.asarray(image.convert(mode)) for image in images])
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
        raise DataError(f"{where}: column '{columns}' has labels of different lengths; they must be of one length")
    return values


def _vectors(table: pa.Table, columns: Sequence[str], where: str) -> np.ndarray:
    parts = []
    for column in columns:
        values = _column(table, column, where)
        if isinstance(values, Ragged) or values.ndim != 1:
            raise DataError(f"{where}: column '{column}' has lists; only columns of single numbers make a vector")
        parts.append(values)
    return np.stack(parts, axis=1)


def _column(table: pa.Table, name: str, where: str) -> np.ndarray | Ragged:
    return column_values(_found(table, name, where), f"{where}: column '{name}'")


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
        raise DataError(f"{where}: column '{name}' is {column.type}; texts or integers are needed")
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
            raise DataError(f"{where}: column '{columns.split}' has {', '.join(names)}; 'train' and 'test' are needed")
        return {str(name): np.flatnonzero(of_row == name) for name in names}
    share = TEST_SHARE if columns.test_share is None else columns.test_share
    number = max(1, round(share * len(table)))
    if number >= len(table):
        raise DataError(f"{where}: of {len(table)} rows, a test share of {share:g} leaves none to train on")
    order = stream(seed, "partition", 2).permutation(len(table))
    return {"train": np.sort(order[number:]), "test": np.sort(order[:number])}
