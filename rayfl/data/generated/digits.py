"""Generated colour images as stand-ins: digits in many colours for photographs, and in four styles for PACS.

Colours, up to 200 classes: class = (digit * 10 + colour of the ink) * 2 + (paper dark or light). A data set with fewer
classes uses the digit, or digit and ink; the remaining attributes vary at random.

Styles, the domains: photos are coloured ink on dark paper, paintings coloured ink on paper of another colour, cartoons
black ink on bright paper, sketches dark grey ink on white. The class is the digit, so a class differs between domains
only in colours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from rayfl.data.dataset import Samples
from rayfl.data.generated import handwriting
from rayfl.streams import stream

DIGITS = 10
COLOURED_WRITERS = 100
MARGIN = 2

INKS = np.array(
    [
        (210, 40, 40),
        (230, 130, 30),
        (200, 190, 40),
        (60, 170, 60),
        (40, 180, 170),
        (60, 120, 220),
        (90, 60, 190),
        (190, 60, 190),
        (130, 90, 60),
        (128, 128, 128),
    ]
)
"""Red, green, blue of the ten inks."""


def generate_coloured(
    cache_dir: Path, seed: int, classes: Literal[10, 100, 200], side: Literal[32, 64]
) -> tuple[Samples, Samples]:
    """Training and test samples: x [n, side, side, 3] uint8, y [n] int64.

    Args:
        classes: 10 for digits; 100 for digit * 10 + ink; 200 for (digit * 10 + ink) * 2 + dark paper.

    Raises:
        DataError: The cache folder cannot be written to.
    """
    written = handwriting.cached(cache_dir, seed, COLOURED_WRITERS, DIGITS)
    rng = stream(seed, "generate", COLOURED_WRITERS)
    n = len(written)
    ink, dark = rng.integers(len(INKS), size=n), rng.integers(2, size=n)
    # Dark paper is below 56 in every channel and light paper from 200 up: every ink is legible on both.
    paper = rng.integers(200, 256, (n, 3)) - dark[:, None] * 200
    colour = np.clip(INKS[ink] + rng.integers(-20, 21, (n, 3)), 0, 255)
    x = painted(written.images, paper, colour, side)
    label = {10: written.labels, 100: written.labels * 10 + ink, 200: (written.labels * 10 + ink) * 2 + dark}[classes]
    train, test = (Samples(x[rows], label[rows]) for rows in (~written.is_test, written.is_test))
    return train, test


_AT_A_TIME = 500
"""Images painted at a time, to limit memory."""


def painted(images: np.ndarray, paper: np.ndarray, ink: np.ndarray, side: int) -> np.ndarray:
    """[n, side, side, 3] uint8 from black on white [n, 28, 28] and the colours [n, 3] of paper and ink, 0 to 255.

    `side` is a multiple of 32.
    """
    x = np.empty((len(images), side, side, 3), np.uint8)
    for row in range(0, len(images), _AT_A_TIME):
        rows = slice(row, row + _AT_A_TIME)
        x[rows] = _painted(images[rows], paper[rows], ink[rows], side)
    return x


def _painted(images: np.ndarray, paper: np.ndarray, ink: np.ndarray, side: int) -> np.ndarray:
    """[n, side, side, 3] uint8 from black on white [n, 28, 28] and the colours [n, 3] of paper and ink."""
    margin = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
    darkness = 255 - np.pad(images, margin, constant_values=255).astype(np.int32)[..., None]
    paper, ink = (colour.astype(np.int32)[:, None, None] for colour in (paper, ink))
    pixels = (paper + (ink - paper) * darkness // 255).astype(np.uint8)
    scale = side // pixels.shape[1]
    return pixels.repeat(scale, axis=1).repeat(scale, axis=2)


STYLED_WRITERS = 60
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


def generate_styled(
    cache_dir: Path, seed: int, classes: int, side: int, choose: Callable[[int], np.ndarray] = np.arange
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images [n, side, side, 3] uint8, their digits [n] int64 and domains [n] int64, indices into `DOMAINS`.

    Args:
        classes: Number of digits, starting at 0.
        side: A multiple of 32.
        choose: Maps the number of images to the indices to return; all by default.

    Raises:
        DataError: The cache folder cannot be written to.
    """
    written = handwriting.cached(cache_dir, seed, STYLED_WRITERS, classes)
    rng = stream(seed, "generate", STYLED_WRITERS)
    n = len(written)
    domain = rng.integers(len(DOMAINS), size=n)
    first = rng.integers(len(INKS), size=n)
    second = (first + rng.integers(1, len(INKS), size=n)) % len(INKS)
    noise = rng.integers(-20, 21, (n, 3))
    bright, dim = 255 - (255 - INKS) // 3, INKS // 4
    grey = np.repeat(rng.integers(0, 80, (n, 1)), 3, axis=1)
    ink = _of_domain(domain, INKS[first], np.zeros((n, 3), int), INKS[first], grey)
    paper = _of_domain(domain, bright[second], bright[first], dim[second], np.full((n, 3), 255))
    ink, paper = (np.clip(colour + noise * (domain != 3)[:, None], 0, 255) for colour in (ink, paper))
    chosen = choose(n)
    images = painted(written.images[chosen], paper[chosen], ink[chosen], side)
    return images, written.labels[chosen], domain[chosen]


def _of_domain(domain: np.ndarray, *colours: np.ndarray) -> np.ndarray:
    """[n, 3]: selects the colour of each image by its domain."""
    chosen: np.ndarray = np.stack(colours)[domain, np.arange(len(domain))]
    return chosen
