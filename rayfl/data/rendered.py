"""Images that are rendered on access and differ from one training batch to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np


class Rendered(ABC):
    """Inputs [n, height, width, channels] uint8 stored only as a recipe.

    Training renders new images for every batch, from the random stream of the view. Code that reads rows as from an
    array, such as evaluation, gets one fixed image per row, the same in every batch and every worker process.

    Attributes:
        shares_views: Whether the views of a training batch are augmentations of one rendering; if not, each view is
            rendered separately.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Rendered
        >>> class Noise(Rendered):
        ...     def __init__(self, rows):
        ...         self.rows = rows
        ...     shape = property(lambda self: (len(self.rows), 8, 8, 1))
        ...     recipe = property(lambda self: {"kind": "noise", "rows": self.rows.tolist()})
        ...     def render(self, rows, rng):
        ...         return rng.integers(0, 256, (len(rows), 8, 8, 1), dtype=np.uint8)
        ...     def fixed(self, rows):
        ...         return np.concatenate([self.render([row], np.random.default_rng(row)) for row in self.rows[rows]])
        ...     def take(self, rows):
        ...         return Noise(self.rows[rows])
        >>> noise = Noise(np.arange(100))
        >>> bool((noise[:3] == noise.take(np.arange(3))[:]).all())
        True
    """

    dtype = np.dtype(np.uint8)
    ndim = 4
    shares_views: bool = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """(n, height, width, channels)."""

    @property
    @abstractmethod
    def recipe(self) -> Mapping[str, Any]:
        """Everything that the images depend on, as numbers and strings; the digest of the data is computed from it."""

    @abstractmethod
    def render(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Renders some rows.

        Args:
            rows: [k] integers.
            rng: Source of all random numbers.

        Returns:
            uint8 [k, height, width, channels].
        """

    def render_views(self, rows: np.ndarray, rngs: Sequence[np.random.Generator]) -> list[np.ndarray]:
        """Renders some rows for the views of a batch, separately unless a subclass shares work between them.

        Args:
            rows: [k] integers.
            rngs: The random stream of each view.

        Returns:
            The result of `render` for every view.
        """
        return [self.render(rows, rng) for rng in rngs]

    @abstractmethod
    def fixed(self, rows: np.ndarray) -> np.ndarray:
        """The fixed images of some rows, uint8 [k, height, width, channels]."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Self:
        """Some of the rows; their fixed images do not change."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """The fixed images of some rows."""
        return self.fixed(np.arange(len(self))[rows])
