"""An Arrow IPC file whose inputs stay on disk: a data set that may be larger than memory."""

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
    """The rows of an Arrow IPC file (Feather, version 2), written without compression.

    Labels, owners and splits are read into memory; inputs are mapped, and read when a batch needs them. They are not
    searched for values that are not finite. The file must lie at the same path on every node.

    Args:
        path: Of the file.
        inputs: A column of numbers, or of lists of one length: [height, width, channels] uint8 are images.
        label: A column, or several of numbers, as of `parquet_folder`.
        owner: The column that says whose sample it is, as of `parquet_folder`.
        split: The column that says `train`, `test`, or the name of a further test set.
        test_share: Without `split`: of all rows, drawn with the data's seed; 0.1 by default.

    Raises:
        ScenarioError: `source` "generated", or a test share where a column splits the data.
        DataError: No such file or column, a damaged or compressed file, or values that are no numbers (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'arrow_file' has nothing to generate; choose 'auto' or 'files'")
    columns = Columns(_ROW, label, owner, split, test_share)
    with reading(path, "as an Arrow file"), pa.memory_map(str(path)) as memory, path.open("rb") as content:
        table = pa.ipc.open_file(memory).read_all()
        table.validate(full=True)  # offsets that lead elsewhere would be followed
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if inputs not in table.column_names:
        raise DataError(f"{path}: has no column '{inputs}'; {nearest(inputs, table.column_names)}")
    table = table.append_column(_ROW, pa.array(np.arange(len(table))))
    parts = samples_of(table, columns, seed, str(path))
    mapped = {name: (MappedRows.of(path, inputs, part[0]), *part[1:]) for name, part in parts.items()}
    provenance = Provenance("files", f"{len(table)} rows of {path}, inputs left on disk", ((str(path), digest),))
    return dataset_of_arrays(f"arrow_file {path.name}", mapped, provenance)
