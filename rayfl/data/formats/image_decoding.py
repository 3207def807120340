"""Decodes an image file and computes its digest."""

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


def read_square(file: Path, size: int) -> tuple[np.ndarray, bytes]:
    """RGB pixels [size, size, 3] uint8 of an image file, cropped to the central square and scaled, and its SHA-256.

    Colours of 16 bits per channel keep their upper 8 bits.

    Raises:
        DataError: As for `read_image`, or grey levels have more than 8 bits.
    """
    image, digest = read_image(file)
    if image.mode in ("F", "I") or image.mode.startswith("I;16"):
        raise DataError(f"{file}: has pixels of mode {image.mode}; convert it to 8 bits per channel")
    # Pillow requires converting a palette with transparency to RGBA first.
    rgb = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
    if rgb.size != (size, size):
        rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.BILINEAR)
    return np.asarray(rgb), digest
