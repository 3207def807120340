"""One random stream per batch or per image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Uniform(Protocol):
    """Draws uniform numbers in [0, 1), like a NumPy generator."""

    def random(self, size: tuple[int, ...], /) -> np.ndarray: ...


class StreamPerImage:
    """Draws from a separate stream per image, so an image does not depend on what else is rendered.

    Args:
        generators: One per image.
        objects: [images] integers, number of rows of a draw for each image.
    """

    def __init__(self, generators: Sequence[np.random.Generator], objects: np.ndarray) -> None:
        self._generators, self._objects = generators, objects

    def random(self, size: tuple[int, ...], /) -> np.ndarray:
        """Draws float64 `size`, whose first dimension counts all objects of all images."""
        pairs = zip(self._generators, self._objects, strict=True)
        drawn = np.concatenate([rng.random((int(rows), *size[1:])) for rng, rows in pairs])
        assert drawn.shape == size
        return drawn
