"""Directions and planes in the space of model vectors.

Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018, section 4: filter-normalised directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rayfl.models.tensors import Slot

TINY = 1e-10
SAME = 1e-6
"""Below this share of the distances between models, they count as equal, or as lying on one line."""


@dataclass(frozen=True)
class Plane:
    """A plane through a point, with coordinates.

    Attributes:
        origin: float64 [n].
        x: float64 [n], the offset of (1, 0) from the origin.
        y: float64 [n], the offset of (0, 1).
    """

    origin: np.ndarray
    x: np.ndarray
    y: np.ndarray

    def point(self, x: float, y: float) -> np.ndarray:
        """float64 [n]: the vector at these coordinates."""
        return self.origin + x * self.x + y * self.y

    def project(self, vector: np.ndarray) -> tuple[float, float, float]:
        """The coordinates of the nearest point, by least squares, and the distance to it."""
        axes, offset = np.stack([self.x, self.y], axis=1), vector - self.origin
        (x, y), *_ = np.linalg.lstsq(axes, offset, rcond=None)
        return float(x), float(y), float(np.linalg.norm(offset - axes @ (x, y)))


def filter_normalised(weights: np.ndarray, layout: Sequence[Slot], rng: np.random.Generator) -> np.ndarray:
    """A random direction with filters that have the norms of the model's filters.

    A filter is a slice along the first axis of a tensor with at least two axes. Biases, batch norm weights and buffers
    have direction 0.

    Args:
        weights: float32 [length of the model].
        layout: Layout of the model.
        rng: Draws a Gaussian direction.

    Returns:
        float64 [length of the model].
    """
    direction = np.zeros(len(weights))
    for slot in layout:
        if not slot.is_parameter or len(slot.shape) < 2:
            continue
        drawn = rng.standard_normal(slot.shape).reshape(slot.shape[0], -1)
        own = slot_view(weights, slot).astype(np.float64).reshape(slot.shape[0], -1)
        scale = np.linalg.norm(own, axis=1) / (np.linalg.norm(drawn, axis=1) + TINY)
        slot_view(direction, slot)[...] = (drawn * scale[:, None]).reshape(slot.shape)
    return direction


def slot_view(vector: np.ndarray, slot: Slot) -> np.ndarray:
    """A view of a tensor in a model vector, in PyTorch's shape."""
    strides = [vector.itemsize * stride for stride in slot.strides]
    return np.lib.stride_tricks.as_strided(vector[slot.offset : slot.offset + slot.size], slot.shape, strides)


def plane_through(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> Plane:
    """The plane through three models: the first is its origin, the second is on its x axis; it preserves distances.

    Raises:
        ValueError: Two of them are equal, or all lie on one line.
    """
    to_second, to_third = second.astype(np.float64) - first, third.astype(np.float64) - first
    lengths = [np.linalg.norm(offset) for offset in (to_second, to_third, to_third - to_second)]
    if min(lengths) <= SAME * max(lengths):
        raise ValueError("two of the models are equal")
    x = to_second / lengths[0]
    across = to_third - (to_third @ x) * x
    height = np.linalg.norm(across)
    if height <= SAME * max(lengths):
        raise ValueError("the models lie on one line")
    return Plane(first.astype(np.float64), x, across / height)


def plane_of_trajectory(models: np.ndarray) -> Plane:
    """The plane through the last model along the first two principal components of the differences from it.

    Args:
        models: [t, n], in order; the last one is the final model.

    Raises:
        ValueError: They are equal, or lie on one line.
    """
    final = models[-1].astype(np.float64)
    differences = models[:-1] - final
    values, vectors = np.linalg.eigh(differences @ differences.T)  # [t - 1, t - 1], small for a short trajectory
    if len(values) < 2 or values[-2] <= SAME**2 * values[-1]:
        raise ValueError("the models are equal, or lie on one line")
    x, y = (differences.T @ vectors[:, -place] / np.sqrt(values[-place]) for place in (1, 2))
    return Plane(final, x, y)
