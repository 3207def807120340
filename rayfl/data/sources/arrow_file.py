"""An Arrow IPC file whose inputs stay on disk, for data larger than memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.columns import Columns, LabelColumns, Name, Share, samples_of
from rayfl.data.mapped_rows import MappedRows
from rayfl.errors import DataError, ScenarioError
from rayfl.reading import reading
from rayfl.registry import nearest

_ROW = "__row"


def load(
    source: Literal["auto", "files", "generated"],
    seed: int,
    path: Path,
    inputs: Name,
    label: LabelColumns,
    owner: Name | None = None,
    split: Name | None = None,
    test_share: Share | None = None,
) -> Dataset:
    """Reads the rows of an Arrow IPC file (Feather, version 2), written without compression.

    Labels, owners and splits are read into memory; inputs are mapped and read when a batch needs them. Inputs are not
    checked for values that are not finite. The file must be at the same path on every node.

    Args:
        path: Path of the file.
        inputs: A column of numbers, or of lists of one length: [height, width, channels] uint8 are images.
        label: One column, or several numeric ones, as for `parquet_folder`.
        owner: The column with the owner of each sample, as for `parquet_folder`.
        split: The column with `train`, `test`, or the name of another test set.
        test_share: Without `split`, the share of rows drawn for testing with the seed of the data; 0.1 by default.

    Raises:
        ScenarioError: `source` is "generated", or both a test share and a split column are given.
        DataError: A file or column does not exist, a file is damaged or compressed, or values are not numeric (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'arrow_file' has nothing to generate; choose 'auto' or 'files'")
    columns = Columns(_ROW, label, owner, split, test_share)
    with reading(path, "as an Arrow file"), pa.memory_map(str(path)) as memory, path.open("rb") as content:
        table = pa.ipc.open_file(memory).read_all()
        table.validate(full=True)  # otherwise invalid offsets would be followed
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if inputs not in table.column_names:
        raise DataError(f"{path}: has no column '{inputs}'; {nearest(inputs, table.column_names)}")
    table = table.append_column(_ROW, pa.array(np.arange(len(table))))
    parts = samples_of(table, columns, seed, str(path))
    mapped = {name: (MappedRows.of(path, inputs, part[0]), *part[1:]) for name, part in parts.items()}
    provenance = Provenance("files", f"{len(table)} rows of {path}, inputs kept on disk", ((str(path), digest),))
    return dataset_of_arrays(f"arrow_file {path.name}", mapped, provenance)
