"""A folder of Parquet files with named columns: tabular data, vectors, sequences, or images as lists of numbers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.columns import Columns, InputColumns, LabelColumns, Name, Share, samples_of
from rayfl.data.formats.digested import read_file
from rayfl.errors import DataError, ScenarioError
from rayfl.reading import reading


def load(
    source: Literal["auto", "files", "generated"],
    seed: int,
    path: Path,
    inputs: InputColumns,
    label: LabelColumns,
    owner: Name | None = None,
    split: Name | None = None,
    test_share: Share | None = None,
) -> Dataset:
    """Reads all Parquet files of a folder, sorted by name, as one table.

    Args:
        path: Path of the folder, or of one file.
        inputs: A column of numbers or lists; several numeric columns, joined to a vector; or a table from arguments of
            the network's `forward` to columns. Lists of different lengths need `data.collate`.
        label: One column, or several numeric ones. Strings and single integers are classes.
        owner: The column with the owner of each sample, its natural client, for training and testing.
        split: The column with `train`, `test`, or the name of another test set.
        test_share: Without `split`, the share of rows drawn for testing with the seed of the data; 0.1 by default.

    Raises:
        ScenarioError: `source` is "generated", or both a test share and a split column are given.
        DataError: A folder, file or column does not exist, a file is damaged, or values are not numeric (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'parquet_folder' has nothing to generate; choose 'auto' or 'files'")
    columns = Columns(inputs, label, owner, split, test_share)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise DataError(f"data.options.path: {path} is neither a Parquet file nor a folder with *.parquet")
    tables, digests = [], []
    for file in files:
        content, digest = read_file(file)
        digests.append(digest)
        tables.append(_read(file, content))
    for file, table in zip(files, tables, strict=True):
        if table.schema.names != tables[0].schema.names or table.schema.types != tables[0].schema.types:
            raise DataError(f"{file}: has different columns than {files[0].name}: {_in_words(table)}")
    parts = samples_of(pa.concat_tables(tables), columns, seed, str(path))
    rows = sum(len(table) for table in tables)
    provenance = Provenance("files", f"{rows} rows of {len(files)} Parquet files in {path}", tuple(digests))
    return dataset_of_arrays(f"parquet_folder {path.name}", parts, provenance)


def _read(file: Path, content: bytes) -> pa.Table:
    with reading(file, "as Parquet"):
        table = pq.read_table(io.BytesIO(content), page_checksum_verification=True)
        table.validate(full=True)
        return table.replace_schema_metadata(None)


def _in_words(table: pa.Table) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in table.schema)
