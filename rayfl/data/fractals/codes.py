"""Codes of iterated function systems, sampled by their singular values.

Anderson and Farrell, "Improving Fractal Pre-training", WACV 2022, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST_MAPS = 4


@dataclass(frozen=True)
class Codes:
    """Iterated function systems of two to four affine maps each.

    Attributes:
        maps: float64 [n, 4, 2, 3], each map a matrix followed by its shift; unused maps of a code are zero.
        sizes: int64 [n], number of maps of each code.
    """

    maps: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: np.ndarray) -> Codes:
        """Some codes, in the order of `rows`."""
        return Codes(self.maps[rows], self.sizes[rows])


def sample_codes(count: int, rng: np.random.Generator) -> Codes:
    """Samples codes under the constraint of the paper: the weighted sum of singular values lies in a narrow range."""
    sizes = rng.integers(2, MOST_MAPS + 1, count)
    maps = np.zeros((count, MOST_MAPS, 2, 3))
    for size in range(2, MOST_MAPS + 1):
        chosen = np.flatnonzero(sizes == size)
        singular = _singular_values(len(chosen), size, rng)
        left, right = (_signed_rotations((len(chosen), size), rng) for _ in range(2))
        maps[chosen, :size, :, :2] = left * singular[..., None, :] @ right
        maps[chosen, :size, :, 2] = rng.uniform(-1, 1, (len(chosen), size, 2))
    return Codes(maps, sizes)


def _singular_values(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """float64 [count, size, 2], s1 >= s2, with sum(s1 + 2 s2) uniform in (5 + N, 6 + N) / 2."""
    left = rng.uniform((5 + size) / 2, (6 + size) / 2, count)
    required = left - 3 * size + 3  # what the remaining maps cannot provide
    values = np.empty((count, size, 2))
    for k in range(size - 1):
        first = rng.uniform(np.maximum(0, required / 3), np.minimum(1, left))
        left, required = left - first, required - first
        second = rng.uniform(np.maximum(0, required / 2), np.minimum(first, left / 2))
        left, required = left - 2 * second, required - 2 * second + 3
        values[:, k] = np.stack([first, second], 1)
    second = rng.uniform(np.maximum(0, (left - 1) / 2), left / 3)
    values[:, -1] = np.stack([left - 2 * second, second], 1)
    return values


def _signed_rotations(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    angle = rng.uniform(-np.pi, np.pi, shape)
    signs = rng.choice([-1.0, 1.0], (*shape, 2))
    cos, sin = np.cos(angle), np.sin(angle)
    rotation = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    return np.asarray(rotation * signs[..., None, :])
