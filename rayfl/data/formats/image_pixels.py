"""Pixels of image files: decoded with their digests, at once or whenever they are accessed.

Images that stay in their files are for data larger than memory.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps

from rayfl.errors import DataError
from rayfl.files import reading

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def read_image(file: Path, formats: tuple[str, ...] = FORMATS) -> tuple[Image.Image, bytes]:
    """The image of a file, and the SHA-256 of the file.

    Raises:
        DataError: The file is missing, truncated, corrupt, in another format, or too large; names it.
    """
    kind = f"a {formats[0]}" if len(formats) == 1 else "an"
    with reading(file, f"as {kind} image"):
        content = file.read_bytes()
        try:
            image: Image.Image = Image.open(io.BytesIO(content), formats=formats)
            image.load()
        except Image.DecompressionBombError as error:
            raise DataError(f"{file}: the image is too large; make it smaller ({error})") from error
    return image, hashlib.sha256(content).digest()


def in_eight_bits(image: Image.Image, mode: Literal["L", "RGB"], which: str) -> Image.Image:
    """An image in a mode of 8 bits per channel.

    Args:
        image: The image.
        mode: Grey or colours.
        which: The image, for the error: "scan.png:".

    Raises:
        DataError: Its grey levels are not whole numbers from 0 to 255, to which Pillow would clip or round them, or are
            declared as 16 bits, or its colours are Lab.
    """
    if image.mode == "LAB":
        raise DataError(f"{which} has pixels of mode LAB; convert it to RGB")
    if image.mode.startswith("I;16"):
        raise DataError(
            f"{which} has pixels of mode {image.mode}; convert it to 8 bits per channel, and scale its pixels (// 257 "
            "from 16 bits)"
        )
    if image.mode in ("I", "F"):
        _check_eight_bits(np.asarray(image), f"{which} has pixels of mode {image.mode}")
        image = image.convert("L")
    if image.mode == mode:
        return image
    # Pillow requires converting a palette with transparency to RGBA first.
    return (image.convert("RGBA") if image.mode in ("P", "PA") else image).convert(mode)


def _check_eight_bits(levels: np.ndarray, what: str) -> None:
    wrong = levels[~((levels >= 0) & (levels <= 255) & (levels == np.round(levels)))]
    if wrong.size:
        raise DataError(
            f"{what} with the value {wrong[0]:g}; convert it to 8 bits per channel, and scale its pixels to whole "
            "numbers from 0 to 255"
        )


def read_square(file: Path, size: int) -> tuple[np.ndarray, bytes]:
    """RGB pixels [size, size, 3] uint8 of an image file, cropped to the central square and scaled, and its SHA-256.

    Colours of 16 bits per channel keep their upper 8 bits.

    Raises:
        DataError: As for `read_image` and `in_eight_bits`.
    """
    image, digest = read_image(file)
    rgb = in_eight_bits(image, "RGB", f"{file}:")
    if rgb.size != (size, size):
        rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.BILINEAR)
    return np.asarray(rgb), digest


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
