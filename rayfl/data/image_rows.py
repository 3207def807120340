"""Images that stay in their files, so that data may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rayfl.errors import DataError

Read = Callable[[Path], tuple[np.ndarray, bytes]]
"""From a file to the pixels of its image, [height, width, channels] uint8, and the file's SHA-256."""


@dataclass(frozen=True)
class ImageRows:
    """Images [n, height, width, channels] uint8, each of which is decoded when it is asked for.

    Whoever is sent them reads the files itself, which must lie at the same paths on every node.

    Attributes:
        root: The folder that holds the files.
        names: [n] bytes, the files' paths below it.
        sha256: [n, 32] uint8, of the files when they were checked; a file that has another one now is an error.
        read: How to read them.
        shape: (n, height, width, channels).
    """

    root: str
    names: np.ndarray
    sha256: np.ndarray
    read: Read
    shape: tuple[int, ...]

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """The images of some rows, [rows, height, width, channels].

        Raises:
            DataError: A file is gone, or was changed.
        """
        names, expected = self.names[rows], self.sha256[rows]
        found = np.empty((len(names), *self.shape[1:]), np.uint8)
        for row, name in enumerate(names.tolist()):
            file = Path(self.root, os.fsdecode(name))
            pixels, digest = self.read(file)
            if digest != expected[row].tobytes():
                raise DataError(f"{file}: was changed since the data was checked; start again")
            found[row] = pixels
        return found

    def take(self, rows: np.ndarray) -> ImageRows:
        """Some of the images; nothing is read."""
        names = self.names[rows]
        return replace(self, names=names, sha256=self.sha256[rows], shape=(len(names), *self.shape[1:]))

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """All images, read into memory; for `numpy.asarray`."""
        return self[:].astype(dtype or self.dtype, copy=False)

    @staticmethod
    def of(root: Path, files: Sequence[Path], sha256: np.ndarray, read: Read, image: tuple[int, ...]) -> ImageRows:
        """Files under `root` whose images have one shape (`image`) once they are read."""
        names = np.array([os.fsencode(file.relative_to(root)) for file in files])
        return ImageRows(str(root), names, sha256, read, (len(files), *image))
