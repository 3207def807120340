"""Memory for the values that are read from files: by default of the process, or in files that vanish with it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from rayfl.errors import DataError

_FOLDER: ContextVar[Path | None] = ContextVar("folder of scratch files", default=None)


@contextmanager
def arrays_in(folder: Path) -> Iterator[None]:
    """Arrays that the block reserves lie in nameless files of a folder, mapped, instead of the process's own memory."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def is_on_disk() -> bool:
    """Whether reserved arrays lie in files, since the data may be larger than memory."""
    return _FOLDER.get() is not None


def reserved(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for values to come.

    Raises:
        DataError: It is larger than what is free on the disk of the folder.
    """
    folder = _FOLDER.get()
    if folder is None or 0 in shape:
        return np.empty(shape, dtype)
    size, free = int(np.prod(shape)) * dtype.itemsize, shutil.disk_usage(folder).free
    if size > free:  # a mapped file that cannot grow would end the process
        raise DataError(
            f"{folder}: values of {size / 2**30:.3g} GiB are read into it for a while, but only {free / 2**30:.3g} GiB "
            "of the disk are free; free some, or name a folder on another disk"
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.asarray(np.memmap(file, dtype, "w+", shape=shape))


def resized(array: np.ndarray, rows: int) -> np.ndarray:
    """The array with another number of rows, of which the first keep their values."""
    if array.flags.owndata:  # the allocator moves pages and copies nothing
        array.resize((rows, *array.shape[1:]), refcheck=False)
        return array
    whole = array.base if isinstance(array.base, np.ndarray) and array.base.ndim == array.ndim else array
    if rows > len(whole):
        whole = reserved((2 * rows, *array.shape[1:]), array.dtype)  # what is not filled takes no room
        whole[: len(array)] = array
    return np.asarray(whole)[:rows]
