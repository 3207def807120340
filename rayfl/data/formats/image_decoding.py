"""One image file to pixels, together with the digest of the file."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from rayfl.errors import DataError
from rayfl.reading import reading

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def read_image(file: Path, formats: tuple[str, ...] = FORMATS) -> tuple[Image.Image, bytes]:
    """The whole image of a file, and the file's SHA-256.

    Raises:
        DataError: It is missing, truncated, corrupt, in another format, or too large (named).
    """
    kind = f"a {formats[0]}" if len(formats) == 1 else "an"
    with reading(file, f"as {kind} image"):
        content = file.read_bytes()
        try:
            image: Image.Image = Image.open(io.BytesIO(content), formats=formats)
            image.load()
        except Image.DecompressionBombError as error:
            raise DataError(f"{file}: is too large an image, make it smaller ({error})") from error
    return image, hashlib.sha256(content).digest()


def read_square(file: Path, size: int) -> tuple[np.ndarray, bytes]:
    """RGB pixels [size, size, 3] uint8 of a file's image, cut to a square in the middle and scaled; the file's SHA-256.

    Colours of 16 bits per channel keep their upper 8.

    Raises:
        DataError: As `read_image`, or gray levels in more than 8 bits.
    """
    image, digest = read_image(file)
    if image.mode in ("F", "I") or image.mode.startswith("I;16"):
        raise DataError(f"{file}: has pixels of mode {image.mode}; convert it to 8 bits per channel")
    # A palette with transparency goes through RGBA, as Pillow asks.
    rgb = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
    if rgb.size != (size, size):
        rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.BILINEAR)
    return np.asarray(rgb), digest
