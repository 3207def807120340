"""A 3 x 3 Gaussian blur of half the images."""

from __future__ import annotations

import numpy as np

from rayfl.data.fractals.streams import Uniform


def randomly_blurred(images: np.ndarray, sigmas: tuple[float, float], rng: Uniform) -> np.ndarray:
    """Blurs each of uint8 images [n, size, size, 3] with probability 1/2, by a sigma uniform between two bounds."""
    draws = rng.random((len(images), 2))
    chosen = np.flatnonzero(draws[:, 0] < 0.5)
    blurred = images.copy()
    blurred[chosen] = gaussian_blur(images[chosen], sigmas[0] + (sigmas[1] - sigmas[0]) * draws[chosen, 1])
    return blurred


def gaussian_blur(images: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Blurs uint8 images by 3 x 3 kernels, one sigma each; borders mirror without the edge pixel, as in OpenCV."""
    neighbour = np.exp(-1 / (2 * sigma**2))
    weights = np.stack([neighbour, np.ones_like(neighbour)]) / (1 + 2 * neighbour)
    outer, inner = weights.astype(np.float32)[..., None, None, None]
    x = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect").astype(np.float32)
    x = outer * (x[:, :-2] + x[:, 2:]) + inner * x[:, 1:-1]
    x = outer * (x[:, :, :-2] + x[:, :, 2:]) + inner * x[:, :, 1:-1]
    x += 0.5
    return np.asarray(x.astype(np.uint8))
