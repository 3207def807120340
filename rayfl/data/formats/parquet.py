"""Reads and writes Parquet with thorough checks: columns of samples, with images as fixed-size bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayfl.errors import DataError
from rayfl.files import atomic_write, reading


def only_parquet(folder: Path, name: str) -> Path | None:
    """The only Parquet file of a folder whose name starts with `name`; None if there is none.

    Raises:
        DataError: There are several.
    """
    files = sorted(folder.glob(f"{name}*.parquet"))
    if len(files) > 1:
        raise DataError(f"{folder}: has {', '.join(file.name for file in files)}; keep only one of them")
    return files[0] if files else None


def read_table(source: Path, schema: pa.Schema, content: bytes | None = None) -> pa.Table:
    """Reads the columns of `schema` from a file; `content` is its content if the caller already has it.

    Raises:
        DataError: The file is missing, truncated or corrupt, has no rows or lacks a column, or a column has another
            type or empty values; names it.
    """
    with reading(source, "as Parquet"):
        file = pq.ParquetFile(source if content is None else io.BytesIO(content), page_checksum_verification=True)
        file_schema = file.schema_arrow
        table = file.read([name for name in schema.names if name in file_schema.names])
        # The reader does not detect damaged strings.
        table.validate(full=True)
        agree = _counts_agree(file.metadata, schema)
    if not agree:
        raise _uncounted(source)
    for field in schema:
        if field.name not in table.column_names:
            raise DataError(f"{source}: has no column '{field.name}'; expected {in_words(schema)}")
        column = table[field.name]
        if column.type != field.type:
            raise DataError(f"{source}: column '{field.name}' is {column.type}; expected {in_words(schema)}")
        if column.null_count:
            raise DataError(f"{source}: column '{field.name}' has {column.null_count} empty values")
    if not len(table):
        raise DataError(f"{source}: has no rows")
    return table


@dataclass(frozen=True)
class ParquetRows:
    """A file whose rows are read a few at a time.

    Attributes:
        file: The file.
        schema: Its columns.
        number: Number of rows.
    """

    file: Path
    schema: pa.Schema
    number: int

    @staticmethod
    def of(file: Path) -> ParquetRows:
        """Reads the footer of a file.

        Raises:
            DataError: The file cannot be read; names it.
        """
        with reading(file, "as Parquet"), pq.ParquetFile(file) as opened:
            return ParquetRows(file, opened.schema_arrow.remove_metadata(), opened.metadata.num_rows)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one column after the other, each in order: a page of every column would take more memory.

        Raises:
            DataError: The file is truncated or corrupt; names it.
        """
        with (
            reading(self.file, "as Parquet"),
            pq.ParquetFile(self.file, page_checksum_verification=True, **_IN_PIECES) as opened,
        ):
            row_bytes = _row_bytes(opened.metadata, columns)
            for name in columns:
                at_once, found = max(1, int(BYTES_AT_ONCE / row_bytes[name])), 0
                for batch in opened.iter_batches(at_once, columns=[name], use_threads=False):
                    batch.validate(full=True)  # the reader does not detect damaged strings
                    found += len(batch)
                    if found <= self.number:
                        yield batch
                if found != self.number:
                    raise _uncounted(self.file)


BYTES_AT_ONCE = 2**21
"""Approximate size of the rows that are decoded at a time."""

_IN_PIECES = {"pre_buffer": False, "buffer_size": 2**16}
"""By default, columns of a row group are read whole, and one group may be the whole file."""


def _row_bytes(metadata: pq.FileMetaData, columns: Sequence[str]) -> dict[str, float]:
    """The size of a decoded row of some columns, in the row group where it is largest."""
    largest = dict.fromkeys(columns, 1.0)
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
        sizes = dict.fromkeys(columns, 0)
        for part in (group.column(index) for index in range(group.num_columns)):
            names = accumulate(part.path_in_schema.split("."), "{}.{}".format)
            if (name := next((name for name in names if name in sizes), None)) is not None:
                # repeated values take next to no bytes in the file
                sizes[name] += max(part.total_uncompressed_size, 8 * part.num_values)
        largest = {name: max(size, sizes[name] / max(1, group.num_rows)) for name, size in largest.items()}
    return largest


def write_table(table: pa.Table, target: Path) -> None:
    """Writes a file with checksums, atomically: under a temporary name, synced, then renamed.

    Raises:
        DataError: The folder cannot be written to; names the file.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from error


def sorted_by_name(ids: pa.Array | pa.ChunkedArray) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct strings of a column, sorted, and the index of each of its [n] rows into them, int64."""
    column = pa.chunked_array([ids]) if isinstance(ids, pa.Array) else ids
    names = pc.unique(column)
    names = names.take(pc.sort_indices(names))
    return tuple(names.to_pylist()), pc.index_in(column, value_set=names).to_numpy().astype(np.int64)


def in_test(table: pa.Table, source: Path) -> np.ndarray:
    """[n] bool from the column `split`.

    Raises:
        DataError: The column has values other than "train" and "test".
    """
    splits, split = sorted_by_name(table["split"])
    if not set(splits) <= {"train", "test"}:
        raise DataError(f"{source}: column 'split' has {', '.join(splits)}; allowed are train and test")
    is_test: np.ndarray = np.array(splits)[split] == "test"
    return is_test


def class_labels(table: pa.Table, source: Path, classes: int, column: str = "label") -> np.ndarray:
    """[n] int64 from a column of labels.

    Raises:
        DataError: Some are not in 0..classes-1.
    """
    values: np.ndarray = table[column].to_numpy().astype(np.int64)
    if values.min() < 0 or values.max() >= classes:
        raise DataError(
            f"{source}: {column}s run from {values.min()} to {values.max()}, allowed are 0 to {classes - 1}"
        )
    return values


def fixed_bytes(column: pa.ChunkedArray) -> np.ndarray:
    """[n, width] uint8, read-only: a column of fixed-size binary."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    width = array.type.byte_width
    return np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width).reshape(-1, width)


def fixed_bytes_column(values: np.ndarray) -> pa.Array:
    """Fixed-size binary from uint8 [n, ...], with one value per row."""
    width = int(np.prod(values.shape[1:]))
    return pa.Array.from_buffers(
        pa.binary(width), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.uint8))]
    )


def in_words(schema: pa.Schema) -> str:
    """The columns of a table with their types."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _uncounted(file: Path) -> DataError:
    return DataError(f"{file}: cannot be read as Parquet, truncated or corrupt? (its counts of rows differ)")


def _counts_agree(metadata: pq.FileMetaData, schema: pa.Schema) -> bool:
    """Whether counts of values and rows agree; checksums cover pages but not the footer."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [(group, group.column(index)) for group in groups for index in range(group.num_columns)]
    return sum(group.num_rows for group in groups) == metadata.num_rows and all(
        column.num_values == group.num_rows for group, column in columns if column.path_in_schema in schema.names
    )
