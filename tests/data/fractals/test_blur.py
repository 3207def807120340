"""The blur is a 3 x 3 Gaussian with mirrored borders, for half the images."""

import numpy as np

from rayfl.data.fractals.canvas import gaussian_blur, randomly_blurred

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)


def test_a_blur_is_the_weighted_mean_of_nine_pixels() -> None:
    sigma = np.array([0.5, 0.8, 1.0, 1.5, 2.0])
    padded = np.pad(IMAGES.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
    expected = np.zeros(IMAGES.shape)
    for i in range(3):
        for j in range(3):
            weight = np.exp(-((i - 1) ** 2 + (j - 1) ** 2) / (2 * sigma**2))
            total = sum(np.exp(-(a * a + b * b) / (2 * sigma**2)) for a in (-1, 0, 1) for b in (-1, 0, 1))
            expected += (weight / total)[:, None, None, None] * padded[:, i : i + 6, j : j + 7]
    assert np.abs(gaussian_blur(IMAGES, sigma) - expected).max() <= 0.51


def test_half_the_images_are_blurred() -> None:
    images = np.tile(IMAGES[:1], (1000, 1, 1, 1))
    blurred = (randomly_blurred(images, (0.5, 2.0), np.random.default_rng(1)) != images).any((1, 2, 3))
    assert 440 < blurred.sum() < 560
