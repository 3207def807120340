"""Prepared Parquet: 28x28 grey images by writer in one file, the format for FEMNIST.

Columns: `writer_id` string, `image` fixed-size binary of 784 bytes (row-major uint8), `label` int16,
`split` string, "train" or "test". Rows of a writer need not be adjacent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.formats.parquet import (
    class_labels,
    fixed_bytes,
    fixed_bytes_column,
    in_test,
    read_table,
    sorted_by_name,
    write_table,
)

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
    """Images and their writers.

    Attributes:
        names: The writers, sorted.
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
        """Builds a data set whose natural clients are the writers, in sorted order."""
        parts = []
        for rows in (~self.is_test, self.is_test):
            samples = Samples(self.images[rows][..., None], self.labels[rows])
            parts.append((samples, Shards.by_owner(self.writer[rows], len(self.names))))
        (train, train_shards), (test, test_shards) = parts
        natural = NaturalClients(self.names, train_shards, test_shards)
        return Dataset(name, train, test, num_classes, provenance, natural)


def read_prepared(source: Path, content: bytes | None = None) -> WrittenImages:
    """Reads a prepared file; `content` is its content if the caller already has it.

    Raises:
        DataError: The file is missing, truncated or corrupt, or has other columns, splits or labels; names it.
    """
    table = read_table(source, _SCHEMA, content)
    names, writer = sorted_by_name(table["writer_id"])
    return WrittenImages(
        names=names,
        writer=writer,
        images=fixed_bytes(table["image"]).reshape(-1, SIDE, SIDE),
        labels=class_labels(table, source, CLASSES),
        is_test=in_test(table, source),
    )


def write_prepared(written: WrittenImages, target: Path) -> None:
    """Writes a prepared file atomically: under a temporary name, synced, then renamed.

    Raises:
        DataError: The folder cannot be written to; names the file.
    """
    writer = pa.DictionaryArray.from_arrays(
        pa.array(written.writer.astype(np.int32)), pa.array(written.names, pa.string())
    )
    split = pa.DictionaryArray.from_arrays(pa.array(written.is_test.astype(np.int32)), pa.array(["train", "test"]))
    columns = [
        writer.cast(pa.string()),
        fixed_bytes_column(written.images),
        pa.array(written.labels.astype(np.int16)),
        split.cast(pa.string()),
    ]
    write_table(pa.Table.from_arrays(columns, schema=_SCHEMA), target)
