"""Generated handwriting: the embedded data set, always available, with any number of writers.

62 classes in the label order of FEMNIST, 28x28 grey, with the polarity of FEMNIST (white paper 255, dark ink
towards 0). As in FEMNIST, writers differ in style (fonts, slant, pen, size, shape of every letter, noise), number
of images (20 to 400, 150 on average) and mix of classes (about 70 % digits). About a tenth of the images of each
writer, at least one, are test images. The images of a writer depend only on the seed and the number of the writer.
Per-pixel computations use only additions, multiplications and the like, so all processors agree on every bit.

Characters of several fonts become pen strokes: the outline of each character is thinned to a line one pixel wide (Zhang
and Suen, "A fast parallel algorithm for thinning digital patterns", CACM 1984); the distance of each point to that line
is stored. Any pen then draws where `distance < radius`, which looks like handwriting, whereas the thick and thin
strokes of the fonts would look like print.
"""

from __future__ import annotations

import hashlib
import logging
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from pydantic import Field, PositiveInt

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.leaf import CLASSES, SIDE, WrittenImages, read_prepared, write_prepared
from rayfl.data.sources.stand_in import check_memory
from rayfl.errors import DataError
from rayfl.streams import stream

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


FORMAT = 1
"""Increases whenever the same seed produces different images, so older caches are not used."""

DEFAULT_WRITERS = 190

MEAN_IMAGES = 150
"""Images of a writer, on average."""

_log = logging.getLogger(__name__)


def load(
    cache_dir: Path,
    seed: int,
    clients: PositiveInt | None = None,
    classes: Annotated[int, Field(ge=2, le=CLASSES)] = CLASSES,
) -> Dataset:
    """Generates handwriting, with one natural client per writer.

    Args:
        clients: Number of writers; 190 by default.
        classes: Number of classes, the first of the 62 characters.

    Raises:
        DataError: The cache folder cannot be written to.
    """
    writers = DEFAULT_WRITERS if clients is None else clients
    return cached(cache_dir, seed, writers, classes).dataset("handwriting", classes, provenance(seed, writers))


def provenance(seed: int, writers: int) -> Provenance:
    """Describes generated handwriting: writers, seed, format and polarity."""
    return Provenance(
        "generated",
        f"Generated handwriting, {writers} writers, seed {seed}, format {FORMAT}; white background (255), dark ink",
    )


def cached(cache_dir: Path, seed: int, writers: int, classes: int = CLASSES) -> WrittenImages:
    """`generate` with a cache file in `cache_dir`; a damaged file is regenerated."""
    file = cache_dir / f"handwriting-v{FORMAT}-seed{seed}-writers{writers}-classes{classes}-{_tools()}.parquet"
    if file.exists():
        try:
            return read_prepared(file)
        except DataError as error:
            _log.warning("regenerating damaged cache file: %s", error)
    written = generate(seed, writers, classes)
    write_prepared(written, file)
    return written


def generate(seed: int, writers: int, classes: int = CLASSES) -> WrittenImages:
    """The images of writers 0..writers-1 (at least one), with the first `classes` classes in the order of FEMNIST.

    Raises:
        ScenarioError: They do not fit into memory.
    """
    check_memory(writers, MEAN_IMAGES * SIDE * SIDE)
    parts = [writer_images(seed, writer, classes) for writer in range(writers)]
    return WrittenImages(
        names=tuple(f"w{writer:07d}" for writer in range(writers)),
        writer=np.repeat(np.arange(writers), [len(labels) for _, labels, _ in parts]),
        images=np.concatenate([images for images, _, _ in parts]),
        labels=np.concatenate([labels for _, labels, _ in parts]),
        is_test=np.concatenate([is_test for _, _, is_test in parts]),
    )


def writer_images(seed: int, writer: int, classes: int = CLASSES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One writer's images [n, 28, 28] uint8, labels [n] int64, and which are test images, [n] bool."""
    rng = stream(seed, "generate", writer)
    labels = _labels(rng, classes)
    is_test = np.zeros(len(labels), bool)
    is_test[rng.choice(len(labels), max(1, round(len(labels) / 10)), replace=False)] = True
    fonts = _fonts(rng)[labels]
    x, y, scale = _places(rng, labels)
    ink = _ink(rng, _sampled(fonts, labels, x, y) * scale[:, None, None])
    noise = rng.standard_normal(ink.shape, np.float32) * np.float32(rng.uniform(0, 8))
    images = np.clip(255 * (1 - ink) + noise, 0, 255)
    return np.rint(images).astype(np.uint8), labels, is_test


def _labels(rng: np.random.Generator, classes: int) -> np.ndarray:
    count = 20 + min(380, round(rng.gamma(3, 43)))
    digits, upper = rng.beta(14, 6), rng.beta(5, 5)
    mix = np.concatenate(
        [
            digits * rng.dirichlet(np.full(10, 8.0)),
            (1 - digits) * upper * rng.dirichlet(np.full(26, 1.5)),
            (1 - digits) * (1 - upper) * rng.dirichlet(np.full(26, 1.5)),
        ]
    )[:classes]
    return rng.choice(classes, count, p=mix / mix.sum())


def _fonts(rng: np.random.Generator) -> np.ndarray:
    """[62] the font of each class for this writer: mostly the same, with some borrowed from other fonts."""
    borrowed = rng.random(CLASSES) < 0.3
    return np.where(borrowed, rng.integers(len(FONTS), size=CLASSES), rng.integers(len(FONTS)))


def _places(rng: np.random.Generator, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position of each pixel on the map of its glyph, x and y [n, 28, 28], and scale of each image [n]; float32."""
    n = len(labels)
    size, width = rng.normal(0.37, 0.045), rng.normal(1.0, 0.12)
    slant, tilt = rng.normal(0.12, 0.2), rng.normal(0, 0.06)
    drift = rng.normal(0, 0.5, 2)
    tall = np.clip(size * rng.normal(1, 0.07, n), 0.25, 0.52)
    wide = np.clip(tall * width * rng.normal(1, 0.07, n), 0.22, 0.6)
    slants, tilts = slant + rng.normal(0, 0.07, n), tilt + rng.normal(0, 0.05, n)
    across, down = (rng.normal(0, 0.6, (2, n)) + drift[:, None])[..., None, None]
    own_shape = rng.normal(0, 3.6, (CLASSES, 2, _KNOTS, _KNOTS))[labels]
    bend = _smooth((own_shape + rng.normal(0, 2.2, own_shape.shape)).astype(np.float32))
    u = (np.arange(SIDE) - (SIDE - 1) / 2)[None, None, :] - across
    v = (np.arange(SIDE) - (SIDE - 1) / 2)[None, :, None] - down
    middle = (SIZE - 1) / 2
    x = middle + (u + slants[:, None, None] * v) / wide[:, None, None] + bend[:, 0]
    y = middle + (v + tilts[:, None, None] * u) / tall[:, None, None] + bend[:, 1]
    return x.astype(np.float32), y.astype(np.float32), ((tall + wide) / 2).astype(np.float32)


_KNOTS = 6
_SPACING = 5.0


def _spline() -> np.ndarray:
    """[28, knots] float32: cubic B-spline weights of knots `_SPACING` pixels apart, centred on the image."""
    pixel = (np.arange(SIDE) - (SIDE - 1) / 2) / _SPACING
    t = np.abs(pixel[:, None] - (np.arange(_KNOTS) - (_KNOTS - 1) / 2))
    near, far = 2 / 3 - t * t + t * t * t / 2, np.maximum(2 - t, 0)
    return np.where(t < 1, near, far * far * far / 6).astype(np.float32)


def _smooth(knots: np.ndarray) -> np.ndarray:
    """Displacements at all pixels [n, 2, 28, 28] from knots [n, 2, knots, knots]; avoids BLAS, whose bits vary."""
    weights = _spline()
    rows = np.zeros((*knots.shape[:-1], SIDE), np.float32)
    bend = np.zeros((*knots.shape[:-2], SIDE, SIDE), np.float32)
    for k in range(_KNOTS):
        rows += knots[..., k, None] * weights[:, k]
    for k in range(_KNOTS):
        bend += rows[..., k, None, :] * weights[:, k, None]
    return bend


def _sampled(fonts: np.ndarray, labels: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance to the stroke of each glyph at (x, y), bilinear; [n, 28, 28] float32."""
    maps = stroke_distances().reshape(-1)
    x, y = np.clip(x, 0, SIZE - 1.01), np.clip(y, 0, SIZE - 1.01)
    left, top = x.astype(np.int32), y.astype(np.int32)
    x, y = x - np.floor(x), y - np.floor(y)
    corner = ((fonts * CLASSES + labels) * (SIZE * SIZE))[:, None, None] + top * SIZE + left
    upper = maps[corner] * (1 - x) + maps[corner + 1] * x
    lower = maps[corner + SIZE] * (1 - x) + maps[corner + SIZE + 1] * x
    distance: np.ndarray = upper * (1 - y) + lower * y
    return distance


def _ink(rng: np.random.Generator, distance: np.ndarray) -> np.ndarray:
    """Darkness of each pixel in 0..1, for the pen radius of this writer; distance is in pixels of the image."""
    radius = np.clip(rng.normal(0.85, 0.22) + rng.normal(0, 0.08, len(distance)), 0.45, 1.5).astype(np.float32)
    darkness = np.float32(rng.uniform(0.85, 1.0))
    ink: np.ndarray = np.clip(radius[:, None, None] + np.float32(0.5) - distance, 0, 1) * darkness
    return ink


def _tools() -> str:
    """Eight hexadecimal digits that change with the libraries that draw glyphs and random numbers."""
    versions = "/".join(version(tool) for tool in ("matplotlib", "pillow", "numpy"))
    return hashlib.sha256(versions.encode()).hexdigest()[:8]
