"""Generated images as a stand-in for PACS: handwritten digits in four styles, the domains.

Photos are coloured ink on dark paper, paintings coloured ink on paper of another colour, cartoons black ink on bright
paper, sketches dark grey ink on white. The class is the digit, so a class differs between domains only in colours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rayfl.data.generated import handwriting
from rayfl.data.generated.coloured_digits import INKS, painted
from rayfl.streams import stream

WRITERS = 60
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


def generate(
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
    written = handwriting.cached(cache_dir, seed, WRITERS, classes)
    rng = stream(seed, "generate", WRITERS)
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
