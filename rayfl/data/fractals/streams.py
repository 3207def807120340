"""One random stream for a batch, or one for every image of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Uniform(Protocol):
    """Draws numbers uniform in [0, 1), like a NumPy generator."""

    def random(self, size: tuple[int, ...], /) -> np.ndarray: ...


class StreamPerImage:
    """Draws for each image from its own stream: an image is then the same whatever is rendered beside it.

    Args:
        generators: One for every image.
        objects: [images] integers, how many rows of a draw belong to each image.
    """

    def __init__(self, generators: Sequence[np.random.Generator], objects: np.ndarray) -> None:
        self._generators, self._objects = generators, objects

    def random(self, size: tuple[int, ...], /) -> np.ndarray:
        """Draws float64 `size`, whose first dimension counts all objects of all images."""
        pairs = zip(self._generators, self._objects, strict=True)
        drawn = np.concatenate([rng.random((int(rows), *size[1:])) for rng, rows in pairs])
        assert drawn.shape == size
        return drawn
