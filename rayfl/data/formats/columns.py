"""Reads samples from columns of an Arrow table: numbers, lists, class names, owners and splits.

Rows of a memory-mapped Arrow file stay on disk, for data larger than memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pydantic import Field

from rayfl.config.registry import nearest
from rayfl.data.checks import check_values
from rayfl.data.files import FileDigest
from rayfl.data.formats.column_values import ColumnValues, is_number, number_dtype
from rayfl.data.formats.parquet import sorted_by_name
from rayfl.data.formats.scratch import reserved
from rayfl.data.indexed_rows import NumberedRows, selected
from rayfl.data.inputs import AsArray, Fields, Inputs, Ragged, spaced
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
        owner: The owner of each sample, its natural client. Test samples belong to no client if one of their owners has
            no training samples.
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


def samples_of(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int, columns: Columns, seed: int, where: str
) -> dict[str, tuple[Any, ...]]:
    """Reads the sets of a table by name, in the form that `dataset_of_arrays` takes.

    Args:
        schema: The schema of the table.
        batches: Its rows, one per sample; each column in order, but not all columns in each batch.
        rows: The number of rows.
        columns: The columns to read.
        seed: The seed of the data, for drawing test samples if no column defines them.
        where: The table, for messages.

    Raises:
        DataError: A column is missing, has empty values or is not numeric, the split lacks "train" or "test", or there
            are no rows.
    """
    if not rows:
        raise DataError(f"{where}: has no rows")
    text = _text_label(schema, columns.label)
    inputs = _Numbers(schema, columns.inputs, rows, where)
    label = _Numbers(schema, () if text else columns.label, rows, where)
    texts = _Texts(schema, (columns.owner, columns.split, text), where)
    for batch in batches:
        for role in (inputs, label, texts):
            role.add(batch)
    x = inputs.values()
    y: np.ndarray
    if text is None:
        y = _labels(label.values(), columns.label, where)
    else:
        y = np.unique(texts.of(text), return_inverse=True)[1]
    owner = None if columns.owner is None else texts.of(columns.owner)
    split = _split(texts, rows, columns, seed, where)
    owned = {} if owner is None else {name: owner[chosen] for name, chosen in split.items()}
    return {
        name: (selected(x, chosen), y[chosen], *([owned[name]] if _has_clients(name, owned) else []))
        for name, chosen in split.items()
    }


def _has_clients(name: str, owned: Mapping[str, np.ndarray]) -> bool:
    return bool(owned) and (name == "train" or (name == "test" and bool(np.isin(owned[name], owned["train"]).all())))


def needed(schema: pa.Schema, columns: Columns) -> list[str]:
    """The columns of a table that `samples_of` reads."""
    named = {*columns_in(columns.inputs), *columns_in(columns.label), columns.owner, columns.split}
    return [name for name in schema.names if name in named]


def columns_in(chosen: InputColumns | LabelColumns | None) -> tuple[str, ...]:
    """The columns that an option names."""
    if chosen is None or isinstance(chosen, str):
        return () if chosen is None else (chosen,)
    return tuple(chosen.values() if isinstance(chosen, dict) else chosen)


class _Numbers:
    """The columns of the inputs, or of the labels."""

    def __init__(self, schema: pa.Schema, columns: InputColumns, rows: int, where: str) -> None:
        self._schema, self._columns, self._where = schema, columns, where
        known = [name for name in dict.fromkeys(columns_in(columns)) if name in schema.names]
        into: dict[str, np.ndarray] = {}
        self._matrix: np.ndarray | None = None
        if isinstance(columns, tuple) and known and all(is_number(schema.field(name).type) for name in known):
            dtypes = [number_dtype(schema.field(name).type) for name in known]
            self._matrix = reserved((rows, len(known)), np.result_type(*dtypes))
            into = dict(zip(known, self._matrix.T, strict=True))
        self._values = {name: ColumnValues(f"{where}: column '{name}'", rows, into.get(name)) for name in known}

    def add(self, batch: pa.RecordBatch) -> None:
        for name in batch.schema.names:
            if name in self._values:
                self._values[name].add(batch.column(name))

    def values(self) -> Inputs:
        if isinstance(self._columns, Mapping):
            return Fields({name: self._column(column) for name, column in self._columns.items()})
        return self._column(self._columns) if isinstance(self._columns, str) else self._vectors(self._columns)

    def _column(self, name: str) -> np.ndarray | Ragged:
        _check_known(self._schema, name, self._where)
        values = self._values[name].values()
        check_values(values, f"{self._where}: column '{name}'")
        return values

    def _vectors(self, columns: Sequence[str]) -> np.ndarray:
        parts = []
        for column in columns:
            values = self._column(column)
            if isinstance(values, Ragged) or values.ndim != 1:
                raise DataError(
                    f"{self._where}: column '{column}' has lists; only columns of single numbers can form a vector"
                )
            parts.append(values)
        if self._matrix is not None and len(parts) == self._matrix.shape[1]:
            return self._matrix
        return np.stack(parts, axis=1)


class _Texts:
    """Columns of strings or integers."""

    def __init__(self, schema: pa.Schema, columns: Iterable[str | None], where: str) -> None:
        self._schema, self._where = schema, where
        self._chunks: dict[str, list[pa.Array]] = {name: [] for name in columns if name and name in schema.names}

    def add(self, batch: pa.RecordBatch) -> None:
        for name in batch.schema.names:
            if name in self._chunks:
                self._chunks[name].append(batch.column(name))

    def of(self, name: str) -> np.ndarray:
        _check_known(self._schema, name, self._where)
        return _texts_or_integers(pa.chunked_array(self._chunks[name]), f"{self._where}: column '{name}'")


def _text_label(schema: pa.Schema, label: LabelColumns) -> str | None:
    """The column of labels, if it holds strings."""
    known = isinstance(label, str) and label in schema.names
    return str(label) if known and _is_text(schema.field(label).type) else None


def _labels(values: Inputs, columns: LabelColumns, where: str) -> np.ndarray:
    if isinstance(values, Ragged):
        raise DataError(
            f"{where}: column '{columns}' has labels of different lengths, but all must have the same length"
        )
    assert isinstance(values, np.ndarray)
    return values


def _check_known(schema: pa.Schema, name: str, where: str) -> None:
    if name not in schema.names:
        raise DataError(f"{where}: has no column '{name}'; {nearest(name, schema.names)}")


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or (pt.is_dictionary(kind) and _is_text(kind.value_type))


def _texts_or_integers(column: pa.ChunkedArray, where: str) -> np.ndarray:
    if column.null_count:
        raise DataError(f"{where} has {column.null_count} empty values")
    if not (_is_text(column.type) or pt.is_integer(column.type)):
        raise DataError(f"{where} is {column.type}, but must hold strings or integers")
    if pt.is_integer(column.type):
        values: np.ndarray = column.to_numpy()
        return values
    names, places = sorted_by_name(column.cast(pa.string()))
    texts: np.ndarray = np.array(names)[places]
    return texts


def _split(texts: _Texts, rows: int, columns: Columns, seed: int, where: str) -> dict[str, np.ndarray]:
    if columns.split:
        of_row = texts.of(columns.split).astype(str)
        names = np.unique(of_row)
        if not {"train", "test"} <= set(names):
            raise DataError(f"{where}: column '{columns.split}' has {', '.join(names)}, but needs 'train' and 'test'")
        return {str(name): np.flatnonzero(of_row == name) for name in names}
    share = TEST_SHARE if columns.test_share is None else columns.test_share
    number = max(1, round(share * rows))
    if number >= rows:
        raise DataError(f"{where}: a test share of {share:g} leaves none of {rows} rows for training")
    order = stream(seed, "partition", 2).permutation(rows)
    return {"train": np.sort(order[number:]), "test": np.sort(order[:number])}


@dataclass(frozen=True)
class MappedRows(NumberedRows, AsArray):
    """Rows of one column of an Arrow IPC file, with the interface of an array, read when they are accessed.

    Every process maps the file itself, so it must have the same path and content on every node.

    Attributes:
        file: Path of the file.
        file_bytes: Its size, to detect that the file was replaced.
        sha256: Its SHA-256 when the data was loaded, so that a process which mapped an earlier file of this path maps
            this one too.
        tried: SHA-256 of some rows of the column, evenly spaced over the file, for the same reason.
        column: A column of numbers, or of lists of one length, nested once per dimension of a row.
        rows: [n] int64, the selected rows of the file.
        shape: (n, ...).
        dtype: The dtype of the values.
    """

    file: str
    file_bytes: int
    sha256: str
    tried: str
    column: str
    rows: np.ndarray
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Copies of some rows: [rows, ...]."""
        wanted = self.rows[rows]
        parts = self._mapped()
        firsts = np.cumsum([0, *map(len, parts)])
        values = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        of_part = np.searchsorted(firsts, wanted, side="right") - 1
        for number in np.unique(of_part):
            here = of_part == number
            values[here] = parts[number][wanted[here] - firsts[number]]
        return values

    def reopen(self) -> None:
        if _digest(self._mapped()) != self.tried:
            raise DataError(
                f"{self.file}: column '{self.column}' holds other values here than where the run started; copy the "
                "same file to every node"
            )

    def take(self, rows: np.ndarray) -> MappedRows:
        """Some rows of the same file, without reading them."""
        selected = self.rows[rows]
        return replace(self, rows=selected, shape=(len(selected), *self.shape[1:]))

    def _mapped(self) -> tuple[np.ndarray, ...]:
        return _mapped(self.file, self.file_bytes, self.sha256, self.column)

    @staticmethod
    def of(digest: FileDigest, column: str, rows: np.ndarray) -> MappedRows:
        """Selects rows of a file, given with its digest.

        Raises:
            DataError: The file cannot be read or mapped, or the rows of the column differ in shape.
        """
        file, sha256 = digest
        size = Path(file).stat().st_size
        parts = _mapped(file, size, sha256, column)
        shape = (len(rows), *parts[0].shape[1:])
        return MappedRows(file, size, sha256, _digest(parts), column, rows, shape, parts[0].dtype)


def _digest(parts: Sequence[np.ndarray]) -> str:
    digest, ends = hashlib.sha256(), np.cumsum([*map(len, parts)])
    for row in spaced(int(ends[-1])):
        part = int(np.searchsorted(ends, row, side="right"))
        digest.update(parts[part][row - ends[part]].tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _mapped(file: str, file_bytes: int, sha256: str, column: str) -> tuple[np.ndarray, ...]:
    """The column in every record batch, without a copy."""
    with reading(file, "as an Arrow file"):
        memory = pa.memory_map(file)
        if memory.size() != file_bytes:
            raise DataError(f"{file}: has {memory.size()} bytes, not {file_bytes}: it was replaced or changed")
        whole = memory.read_buffer()
        reader = pa.ipc.open_file(whole)
        every = (reader.get_batch(number) for number in range(reader.num_record_batches))
        batches = [batch for batch in every if batch.num_rows]
        for batch in batches:
            batch.column(column).validate(full=True)  # otherwise invalid offsets would be followed
    where = f"{file}: column '{column}'"
    parts: list[np.ndarray] = []
    for batch in batches:
        view = ColumnValues(where, len(batch), is_view=True)
        view.add(batch.column(column))
        values = view.values()
        if isinstance(values, Ragged):
            raise DataError(f"{where} has lists of different lengths; rows that stay on disk must have one shape")
        address = values.__array_interface__["data"][0]
        if len(values) and not whole.address <= address < whole.address + whole.size:
            raise DataError(f"{where} is compressed or boolean; write it uncompressed, as numbers")
        if parts and values.shape[1:] != parts[0].shape[1:]:
            raise DataError(f"{where} has lists of different lengths; rows that stay on disk must have one shape")
        parts.append(values)
    return tuple(parts)
