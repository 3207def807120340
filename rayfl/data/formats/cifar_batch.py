"""One file of the original CIFAR distributions: a batch of the "python version" (a pickle) or "binary version".

Reading a pickle can run arbitrary code. Here it cannot: the few names in the real files become inert records, any
other name is an error, and the pixels are read from the records as bytes.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.errors import DataError
from rayfl.reading import reading

PIXELS = 3 * 32 * 32


class _Array:
    """The state of a pickled numpy array: (version, shape, dtype, Fortran order, bytes)."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype:
    """The state of a pickled numpy dtype: its name."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Ignores byte order and the like, which do not apply to bytes."""


class _Subtype:
    """Replaces numpy.ndarray, which the real files name but which is not needed."""


_INERT = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Subtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in _INERT:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which CIFAR's files do not")
        return _INERT[module_name, global_name]


def read_pickle(file: Path, content: bytes, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] uint8 and labels [n] int64 of a batch of the python version.

    Args:
        label_key: `labels`, or for CIFAR-100 `fine_labels` or `coarse_labels`.

    Raises:
        DataError: The file is damaged, names anything but numpy arrays, or does not hold a batch; names it.
    """
    with reading(file, "as a pickle"):
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    batch = {_text(key): value for key, value in batch.items()} if isinstance(batch, dict) else {}
    data, labels = batch.get("data"), batch.get(label_key)
    match data:
        case _Array(state=(_, (int(n), int(width)), _Dtype(name=b"u1" | "u1"), False, bytes(pixels))):
            as_expected = width == PIXELS and len(pixels) == n * width
        case _:
            as_expected = False
    if not as_expected or not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{file}: needs 'data', uint8 [n, {PIXELS}], and '{label_key}', a list of integers")
    return np.frombuffer(pixels, np.uint8).reshape(n, 3, 32, 32), np.array(labels, np.int64)


def read_binary(file: Path, content: bytes, label_bytes: int, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] uint8 and labels [n] int64 of a file of the binary version.

    A record has `label_bytes` labels (CIFAR-10 one, CIFAR-100 two: coarse, fine), of which `label` is the index to
    read, followed by the image.

    Raises:
        DataError: The file does not hold a whole number of records; names it.
    """
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(f"{file}: has {len(content)} bytes, not a multiple of {record}; truncated or corrupt")
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label].astype(np.int64)


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key
