"""Backgrounds of coloured noise by the diamond-square algorithm, for the multi-label baseline."""

from __future__ import annotations

import numpy as np

from rayfl.data.fractals.colouring import hsv_to_rgb
from rayfl.data.fractals.streams import Uniform


def backgrounds(n: int, size: int, rng: Uniform) -> np.ndarray:
    """uint8 [n, size, size, 3]: clouds whose height determines hue, saturation and value."""
    heights = diamond_square(n, size, rng)
    draws = rng.random((n, 6))[..., None, None]
    hue = (0.25 + 0.75 * draws[:, 0]) * heights + draws[:, 1]
    saturation = (0.1 + 0.2 * draws[:, 2]) * heights + 0.4 + 0.2 * draws[:, 3]
    value = (0.3 + 0.3 * draws[:, 4]) * heights + 0.4 + 0.2 * draws[:, 5]
    saturation, value = (np.floor(255 * np.clip(part, 0, 1)) for part in (saturation, value))
    return hsv_to_rgb(np.floor(255 * hue).astype(np.int64) & 255, saturation, value)


def diamond_square(n: int, size: int, rng: Uniform) -> np.ndarray:
    """float64 [n, size, size]: corners in [0, 1), and noise of +-e^(fading (1 - level)) / 2 at a level."""
    levels = int(np.ceil(np.log2(size - 1)))
    side = 2**levels + 1
    draws = rng.random((n, 1 + side**2))
    fading, noise = 0.4 + 0.4 * draws[:, 0], draws[:, 1:].reshape(n, side, side)
    heights = noise.copy()
    noise -= 0.5
    for level in range(1, levels + 1):
        step = 2 ** (levels - level)
        noise_here = np.exp(fading * (1 - level))[:, None, None] * noise[:, ::step, ::step]
        _refine(heights[:, ::step, ::step], noise_here)
    return heights[:, :size, :size]


def _refine(grid: np.ndarray, noise: np.ndarray) -> None:
    """Fills in the points between the even points of a grid [n, 2 m + 1, 2 m + 1]."""
    corners = grid[:, ::2, ::2]
    grid[:, 1::2, 1::2] = (
        corners[:, :-1, :-1] + corners[:, 1:, :-1] + corners[:, :-1, 1:] + corners[:, 1:, 1:]
    ) / 4 + noise[:, 1::2, 1::2]
    centres = grid[:, 1::2, 1::2]
    for axes in ((0, 1, 2), (0, 2, 1)):
        ends = corners.transpose(axes)
        beside = np.pad(centres.transpose(axes), ((0, 0), (1, 1), (0, 0)))  # no neighbour beyond the border
        total = ends[:, :, :-1] + ends[:, :, 1:] + beside[:, :-1] + beside[:, 1:]
        neighbours = np.full((ends.shape[1], 1), 4)
        neighbours[[0, -1]] = 3
        grid.transpose(axes)[:, ::2, 1::2] = total / neighbours + noise.transpose(axes)[:, ::2, 1::2]
