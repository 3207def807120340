"""Characters of several fonts as pen strokes: the distance of each point from the centre line of the character.

The outline of each character is thinned to a line one pixel wide (Zhang and Suen, "A fast parallel algorithm for
thinning digital patterns", CACM 1984); the distance to that line is stored. Any pen then draws where
`distance < radius`, which looks like handwriting, whereas the thick and thin strokes of the fonts would look like
print.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""Classes of FEMNIST in label order: 0-9 digits, 10-35 upper case, 36-61 lower case."""

FONTS = (
    "DejaVuSans",
    "DejaVuSansMono",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralItalic",
    "cmr10",
    "cmss10",
    "cmtt10",
    "cmti10",
    "cmmi10",
)
"""Fonts shipped with matplotlib that differ in more than weight and slant."""

SIZE = 64
"""Height and width of the map of a glyph, in pixels."""

CAPITAL = 34
"""Height of a capital letter on the map, in pixels, for every font."""

FAR = 8.0
"""Maximum distance, in pixels of the map; every pen is thinner."""


@cache
def stroke_distances() -> np.ndarray:
    """[fonts, classes, SIZE, SIZE] float32: distance in pixels to the centre of the stroke, at most FAR."""
    outlines = np.stack([_outlines(font) for font in FONTS])
    flat = outlines.reshape(-1, SIZE, SIZE)
    return _distance(_thinned(flat)).reshape(outlines.shape)


def _outlines(font: str) -> np.ndarray:
    """[classes, SIZE, SIZE] bool: the filled characters of a font, each centred on its map."""
    path = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf")
    _, top, _, bottom = ImageFont.truetype(path, 100).getbbox("H")
    size = round(100 * CAPITAL / (bottom - top))
    scaled = ImageFont.truetype(path, size)
    maps = np.zeros((len(CHARACTERS), SIZE, SIZE), bool)
    for label, character in enumerate(CHARACTERS):
        left, top, right, bottom = scaled.getbbox(character)
        picture = Image.new("L", (SIZE, SIZE))
        corner = ((SIZE - left - right) / 2, (SIZE - top - bottom) / 2)
        ImageDraw.Draw(picture).text(corner, character, fill=255, font=scaled)
        maps[label] = np.asarray(picture) > 127
    return maps


def _thinned(ink: np.ndarray) -> np.ndarray:
    """Zhang and Suen's thinning of all maps at once; [n, SIZE, SIZE] bool in and out."""
    ink = ink.copy()
    for _ in range(SIZE):
        before = ink.copy()
        for second in (False, True):
            padded = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
            # The eight neighbours, clockwise from above; the first is repeated to count changes in the ring.
            shifts = ((0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0), (0, 0), (0, 1))
            ring = [padded[:, y : y + SIZE, x : x + SIZE] for y, x in shifts]
            neighbours = np.sum(ring[:8], axis=0, dtype=np.int8)
            rises = np.sum([~a & b for a, b in pairwise(ring)], axis=0, dtype=np.int8)
            up, right, down, left = ring[0], ring[2], ring[4], ring[6]
            if second:
                open_side = ~(up & right & left) & ~(up & down & left)
            else:
                open_side = ~(up & right & down) & ~(right & down & left)
            ink &= ~((neighbours >= 2) & (neighbours <= 6) & (rises == 1) & open_side)
        if np.array_equal(before, ink):
            break
    return ink


def _distance(line: np.ndarray) -> np.ndarray:
    """Euclidean distance to the nearest True, at most FAR; columns first, then rows."""
    reach = int(FAR)
    height, width = line.shape[1:]
    padded = np.pad(line, ((0, 0), (reach, reach), (0, 0)))
    column = np.full(line.shape, FAR * FAR, np.float32)
    for shift in range(-reach, reach + 1):
        near = padded[:, reach + shift : reach + shift + height]
        np.minimum(column, np.where(near, np.float32(shift * shift), np.float32(FAR * FAR)), out=column)
    padded = np.pad(column, ((0, 0), (0, 0), (reach, reach)), constant_values=FAR * FAR)
    squared = column.copy()
    for shift in range(-reach, reach + 1):
        near = padded[:, :, reach + shift : reach + shift + width]
        np.minimum(squared, near + np.float32(shift * shift), out=squared)
    return np.sqrt(squared)
