"""Images that stay in their files, for data larger than memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rayfl.errors import DataError

Read = Callable[[Path], tuple[np.ndarray, bytes]]
"""Reads the pixels [height, width, channels] uint8 of an image file and the SHA-256 of the file."""


@dataclass(frozen=True)
class ImageRows:
    """Images [n, height, width, channels] uint8, decoded when they are accessed.

    Every process reads the files itself, so they must have the same paths on every node.

    Attributes:
        root: The folder that holds the files.
        names: [n] bytes, the paths of the files below it.
        sha256: [n, 32] uint8, SHA-256 of the files when they were checked; a file that has changed since is an error.
        read: Reads one file.
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
            DataError: A file is missing or has changed.
        """
        names, expected = self.names[rows], self.sha256[rows]
        found = np.empty((len(names), *self.shape[1:]), np.uint8)
        for row, name in enumerate(names.tolist()):
            file = Path(self.root, os.fsdecode(name))
            pixels, digest = self.read(file)
            if digest != expected[row].tobytes():
                raise DataError(f"{file}: has changed since the data was checked; start again")
            found[row] = pixels
        return found

    def take(self, rows: np.ndarray) -> ImageRows:
        """Some of the images, without reading them."""
        names = self.names[rows]
        return replace(self, names=names, sha256=self.sha256[rows], shape=(len(names), *self.shape[1:]))

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """All images, read into memory; for `numpy.asarray`."""
        return self[:].astype(dtype or self.dtype, copy=False)

    @staticmethod
    def of(root: Path, files: Sequence[Path], sha256: np.ndarray, read: Read, image: tuple[int, ...]) -> ImageRows:
        """Builds them from files under `root` whose images all have the shape `image`."""
        names = np.array([os.fsencode(file.relative_to(root)) for file in files])
        return ImageRows(str(root), names, sha256, read, (len(files), *image))
