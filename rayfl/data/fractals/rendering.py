"""Renders points as grey images: counts per pixel within a bounding window, with a random 3 x 3 patch per point."""

from __future__ import annotations

import numpy as np


def patch_counts(points: np.ndarray, size: int, patches: np.ndarray) -> np.ndarray:
    """Counts how often the patches around the points cover each pixel.

    The window spans the smallest to the largest coordinate of a chain, separately in each direction. A point covers the
    pixels that the patch of its chain selects among its own and the eight neighbouring ones; pixels outside the image
    are dropped. All points of a chain share the patch, so one correlation of the point counts with it is enough.

    Args:
        points: float64 [steps, n, blocks, 2] of n chains. The first coordinate gives the row.
        size: Side of the image in pixels.
        patches: bool [n, 3, 3].

    Returns:
        int32 [n, size, size].
    """
    _, n, blocks, _ = points.shape
    low, high = points.min(0).min(1, keepdims=True), points.max(0).max(1, keepdims=True)
    span = np.where(high > low, high - low, 1)
    low, span = (
        np.repeat(part, blocks, 1) for part in (low, span)
    )  # broadcasting would run along two numbers at a time
    pixels = points - low
    pixels *= size - 1
    pixels /= span
    pixels = pixels.astype(np.int32)
    place = pixels[..., 0] * np.intp(size)
    place += pixels[..., 1]
    place += (np.arange(n) * size**2)[:, None]
    counts = np.bincount(place.ravel(), minlength=n * size**2).reshape(n, size, size).astype(np.int32)
    return _correlated(counts, patches)


def _correlated(counts: np.ndarray, patches: np.ndarray) -> np.ndarray:
    size = counts.shape[1]
    padded = np.pad(counts, ((0, 0), (1, 1), (1, 1)))
    covered = np.zeros_like(counts)
    for row, column in np.ndindex(3, 3):
        on = np.flatnonzero(patches[:, row, column])
        covered[on] += padded[on, 2 - row : 2 - row + size, 2 - column : 2 - column + size]
    return covered


def graded(counts: np.ndarray) -> np.ndarray:
    """float32 [n, size, size] in [0, 1]: counts divided by the largest count of the image; black if there are none."""
    most = counts.max((1, 2), keepdims=True)
    return np.asarray(counts / np.maximum(most, 1), np.float32)
