"""Arrays in a NumPy file `.npz`, with an owner for every row where the data has clients of its own."""

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
    """The arrays train_x, train_y, test_x and test_y of a file; train_owner and test_owner if there are any.

    Args:
        path: Of the file. NAME_x and NAME_y are a further test set. Owners are integers or
            texts. Pickled objects are refused.

    Raises:
        ScenarioError: `source` "generated".
        DataError: No such file, a damaged one, one that does not fit the memory, one of the arrays is missing, or one
            has a name of another form.
    """
    if source == "generated":
        raise ScenarioError("data.source: 'npz_file' has nothing to generate; choose 'auto' or 'files'")
    content, digest = read_file(path)
    with reading(path, "as .npz"), zipfile.ZipFile(io.BytesIO(content)) as packed:
        unpacked = sum(part.file_size for part in packed.infolist())  # no more is read, whatever else is there
    if unpacked > (free := psutil.virtual_memory().available):
        raise DataError(f"{path}: unpacks to {unpacked / 2**30:.3g} GiB, and {free / 2**30:.3g} GiB of memory are free")
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
