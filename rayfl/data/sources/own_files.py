"""Files with data of your own: an Arrow IPC file, a folder of Parquet files, or arrays in a NumPy file `.npz`.

The inputs of an Arrow file stay on disk, for data larger than memory. Parquet files have named columns: tabular data,
vectors, sequences, or images as lists of numbers. A NumPy file optionally has an owner for every row.
"""

from __future__ import annotations

import zipfile
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import pyarrow as pa

from rayfl.config.registry import nearest
from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.files import digest_of
from rayfl.data.formats.columns import (
    Columns,
    InputColumns,
    LabelColumns,
    MappedRows,
    Name,
    Share,
    needed,
    samples_of,
)
from rayfl.data.formats.parquet import ParquetRows, in_words
from rayfl.data.formats.scratch import is_on_disk, reserved
from rayfl.errors import DataError, ScenarioError
from rayfl.files import reading

_ROW = "__row"


def load_arrow_file(
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
    with reading(path, "as an Arrow file"), pa.memory_map(str(path)) as memory:
        table = pa.ipc.open_file(memory).read_all()
        table.validate(full=True)  # otherwise invalid offsets would be followed
        digest = digest_of(path)
    if inputs not in table.column_names:
        raise DataError(f"{path}: has no column '{inputs}'; {nearest(inputs, table.column_names)}")
    table = table.append_column(_ROW, pa.array(np.arange(len(table))))
    parts = samples_of(table.schema, table.to_batches(), len(table), columns, seed, str(path))
    mapped = {name: (MappedRows.of(digest, inputs, part[0][:]), *part[1:]) for name, part in parts.items()}
    provenance = Provenance("files", f"{len(table)} rows of {path}, inputs kept on disk", (digest,))
    return dataset_of_arrays(f"arrow_file {path.name}", mapped, provenance)


def load_parquet_folder(
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
    digests = tuple(digest_of(file) for file in files)
    opened = [ParquetRows.of(file) for file in files]
    schema, rows = opened[0].schema, sum(part.number for part in opened)
    for part in opened:
        if part.schema.names != schema.names or part.schema.types != schema.types:
            raise DataError(f"{part.file}: has different columns than {files[0].name}: {in_words(part.schema)}")
    wanted = needed(schema, columns)
    batches = chain.from_iterable(part.batches(wanted) for part in opened)
    parts = samples_of(schema, batches, rows, columns, seed, str(path))
    pa.default_memory_pool().release_unused()
    provenance = Provenance("files", f"{rows} rows of {len(files)} Parquet files in {path}", digests)
    return dataset_of_arrays(f"parquet_folder {path.name}", parts, provenance)


_KINDS = ("x", "y", "owner")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_BYTES_AT_ONCE = 2**20


def load_npz_file(source: Literal["auto", "files", "generated"], path: Path) -> Dataset:
    """Reads the arrays train_x, train_y, test_x, test_y and, if present, train_owner and test_owner of a file.

    Args:
        path: Path of the file. NAME_x and NAME_y are an additional test set. Owners are integers or strings. Pickled
            objects are not allowed.

    Raises:
        ScenarioError: `source` is "generated".
        DataError: The file does not exist, is damaged or does not fit into memory, an array is missing, or a name has
            another form.
    """
    if source == "generated":
        raise ScenarioError("data.source: 'npz_file' has nothing to generate; choose 'auto' or 'files'")
    digest = digest_of(path)
    with reading(path, "as .npz"), zipfile.ZipFile(path) as packed:
        unpacked = sum(part.file_size for part in packed.infolist())  # nothing else is read
    if not is_on_disk() and unpacked > (free := psutil.virtual_memory().available):
        raise DataError(
            f"{path}: unpacks to {unpacked / 2**30:.3g} GiB, but only {free / 2**30:.3g} GiB of memory are free"
        )
    with reading(path, "as .npz"), np.load(path, allow_pickle=False) as arrays:
        by_name = {name: _array(arrays, name) for name in arrays.files}
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, array in by_name.items():
        part, _, kind = name.rpartition("_")
        if not part or kind not in _KINDS:
            raise DataError(f"{path}: has an array '{name}'; names are train_x, train_y, train_owner, test_x, ...")
        parts.setdefault(part, {})[kind] = array
    for part in {"train": {}, "test": {}} | parts:
        for kind in ("x", "y"):
            if kind not in parts.get(part, {}):
                raise DataError(f"{path}: has no array '{part}_{kind}'; it has {', '.join(by_name)}")
    loaded = {part: tuple(arrays[kind] for kind in _KINDS if kind in arrays) for part, arrays in parts.items()}
    return dataset_of_arrays(f"npz_file {path.name}", loaded, Provenance("files", f"arrays of {path}", (digest,)))


def _array(arrays: Any, name: str) -> np.ndarray:
    """An array of an open `.npz`, read a piece at a time into memory from `reserved`."""
    member = f"{name}.npy"
    if member in arrays.zip.namelist():
        with arrays.zip.open(member) as file:
            header = _HEADERS.get(np.lib.format.read_magic(file))
            shape, is_transposed, dtype = header(file) if header else ((), True, np.dtype(object))
            if not (is_transposed or dtype.hasobject):
                values = reserved(shape, dtype)
                content = values.reshape(-1).view(np.uint8) if values.size else np.empty(0, np.uint8)
                for start in range(0, len(content), _BYTES_AT_ONCE):
                    piece = content[start : start + _BYTES_AT_ONCE]
                    if file.readinto(piece) < len(piece):
                        raise ValueError(f"{member} ends before its last value")
                file.read(1)  # compares the checksum
                return values
    unusual: np.ndarray = arrays[name]
    return unusual
