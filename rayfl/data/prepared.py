"""Prepared Parquet: 28x28 grey images by writer in one file, the form in which rayfl keeps FEMNIST.

Columns: `writer_id` string, `image` fixed-size binary of 784 bytes (row-major uint8), `label` int16,
`split` string, "train" or "test". Rows of a writer need not be neighbours.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayfl.data.dataset import Dataset, Examples, NaturalClients, Provenance, Shards
from rayfl.durable import written_whole
from rayfl.errors import DataError

SIDE = 28
CLASSES = 62
_SCHEMA = pa.schema(
    [
        ("writer_id", pa.string()),
        ("image", pa.binary(SIDE * SIDE)),
        ("label", pa.int16()),
        ("split", pa.string()),
    ]
)


@dataclass(frozen=True)
class WrittenImages:
    """Images, and who wrote them.

    names: the writers, sorted.
    writer: [n] int64, index into `names`.
    images: [n, 28, 28] uint8.
    labels: [n] int64, 0..61.
    is_test: [n] bool.
    """

    names: tuple[str, ...]
    writer: np.ndarray
    images: np.ndarray
    labels: np.ndarray
    is_test: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def dataset(self, name: str, num_classes: int, provenance: Provenance) -> Dataset:
        """The same as a data set whose natural clients are the writers, in sorted order."""
        parts = []
        for rows in (~self.is_test, self.is_test):
            examples = Examples(self.images[rows][..., None], self.labels[rows])
            parts.append((examples, Shards.by_owner(self.writer[rows], len(self.names))))
        (train, train_shards), (test, test_shards) = parts
        natural = NaturalClients(self.names, train_shards, test_shards)
        return Dataset(name, train, test, num_classes, provenance, natural)


def sorted_by_name(ids: pa.Array | pa.ChunkedArray) -> tuple[tuple[str, ...], np.ndarray]:
    """The different strings of a column, sorted, and for each of its [n] rows the place among them, int64."""
    column = pa.chunked_array([ids]) if isinstance(ids, pa.Array) else ids
    names = pc.unique(column)
    names = names.take(pc.sort_indices(names))
    return tuple(names.to_pylist()), pc.index_in(column, value_set=names).to_numpy().astype(np.int64)


def read_prepared(source: Path, content: bytes | None = None) -> WrittenImages:
    """Reads a prepared file; `content` are its bytes where the caller has them already.

    Raises:
        DataError: the file is missing, truncated or corrupt, or has other columns, splits or labels; names it.
    """
    try:
        file = pq.ParquetFile(source if content is None else io.BytesIO(content), page_checksum_verification=True)
        table = file.read()
        # Damaged strings come through the reader unless they are looked at.
        table.validate(full=True)
    except FileNotFoundError:
        raise DataError(f"{source}: there is no such file") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{source}: cannot be read as Parquet, truncated or corrupt? ({reason})") from error
    if not _counts_agree(file.metadata):
        raise DataError(f"{source}: cannot be read as Parquet, truncated or corrupt? (its counts of rows differ)")
    for field in _SCHEMA:
        if field.name not in table.column_names:
            raise DataError(f"{source}: has no column '{field.name}'; expected {_columns()}")
        column = table[field.name]
        if column.type != field.type:
            raise DataError(f"{source}: column '{field.name}' is {column.type}; expected {_columns()}")
        if column.null_count:
            raise DataError(f"{source}: column '{field.name}' has {column.null_count} empty values")
    if not len(table):
        raise DataError(f"{source}: has no rows")
    splits, split = sorted_by_name(table["split"])
    if not set(splits) <= {"train", "test"}:
        raise DataError(f"{source}: column 'split' has {', '.join(splits)}; allowed are train and test")
    labels = table["label"].to_numpy().astype(np.int64)
    if labels.min() < 0 or labels.max() >= CLASSES:
        raise DataError(f"{source}: labels run from {labels.min()} to {labels.max()}, allowed are 0 to {CLASSES - 1}")
    names, writer = sorted_by_name(table["writer_id"])
    return WrittenImages(names, writer, _pixels(table["image"]), labels, np.array(splits)[split] == "test")


def write_prepared(written: WrittenImages, target: Path) -> None:
    """Writes a prepared file, whole or not at all: under a temporary name, synced, then renamed.

    Raises:
        DataError: the folder cannot be written to; names the file.
    """
    size = SIDE * SIDE
    pixels = np.ascontiguousarray(written.images, np.uint8)
    writer = pa.DictionaryArray.from_arrays(
        pa.array(written.writer.astype(np.int32)), pa.array(written.names, pa.string())
    )
    split = pa.DictionaryArray.from_arrays(pa.array(written.is_test.astype(np.int32)), pa.array(["train", "test"]))
    columns = [
        writer.cast(pa.string()),
        pa.Array.from_buffers(pa.binary(size), len(written), [None, pa.py_buffer(pixels)]),
        pa.array(written.labels.astype(np.int16)),
        split.cast(pa.string()),
    ]
    table = pa.Table.from_arrays(columns, schema=_SCHEMA)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(target) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from error


def _columns() -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in _SCHEMA)


def _counts_agree(metadata: pq.FileMetaData) -> bool:
    """Whether every column has as many values as its row group has rows; checksums cover pages, not the footer."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [(group, group.column(index)) for group in groups for index in range(group.num_columns)]
    return sum(group.num_rows for group in groups) == metadata.num_rows and all(
        column.num_values == group.num_rows for group, column in columns if column.path_in_schema in _SCHEMA.names
    )


def _pixels(column: pa.ChunkedArray) -> np.ndarray:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    size = SIDE * SIDE
    pixels = np.frombuffer(array.buffers()[1], np.uint8, len(array) * size, array.offset * size)
    return pixels.reshape(-1, SIDE, SIDE)
