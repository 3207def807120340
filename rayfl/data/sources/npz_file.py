"""Arrays in a NumPy file `.npz`, optionally with an owner for every row."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np
import psutil

from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.digested import read_file
from rayfl.errors import DataError, ScenarioError
from rayfl.reading import reading

_KINDS = ("x", "y", "owner")


def load(source: Literal["auto", "files", "generated"], path: Path) -> Dataset:
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
    content, digest = read_file(path)
    with reading(path, "as .npz"), zipfile.ZipFile(io.BytesIO(content)) as packed:
        unpacked = sum(part.file_size for part in packed.infolist())  # nothing else is read
    if unpacked > (free := psutil.virtual_memory().available):
        raise DataError(
            f"{path}: unpacks to {unpacked / 2**30:.3g} GiB, but only {free / 2**30:.3g} GiB of memory are free"
        )
    with reading(path, "as .npz"), np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, array in found.items():
        part, _, kind = name.rpartition("_")
        if not part or kind not in _KINDS:
            raise DataError(f"{path}: has an array '{name}'; names are train_x, train_y, train_owner, test_x, ...")
        parts.setdefault(part, {})[kind] = array
    for part in {"train": {}, "test": {}} | parts:
        for kind in ("x", "y"):
            if kind not in parts.get(part, {}):
                raise DataError(f"{path}: has no array '{part}_{kind}'; it has {', '.join(found)}")
    loaded = {part: tuple(arrays[kind] for kind in _KINDS if kind in arrays) for part, arrays in parts.items()}
    return dataset_of_arrays(f"npz_file {path.name}", loaded, Provenance("files", f"arrays of {path}", (digest,)))
