"""Backgrounds follow the diamond-square algorithm, run here point by point."""

import numpy as np

from rayfl.data.fractals.canvas import backgrounds, diamond_square


def point_by_point(fading: float, noise: np.ndarray) -> np.ndarray:
    side = len(noise)
    heights = np.full((side, side), np.nan)
    for i in (0, side - 1):
        for j in (0, side - 1):
            heights[i, j] = noise[i, j]
    span, level = side - 1, 1
    while span > 1:
        half = span // 2
        amplitude = np.exp(fading * (1 - level))
        for diagonal in (True, False):
            for i in range(0, side, half):
                for j in range(0, side, half):
                    if (i % span != 0 and j % span != 0) != diagonal or not np.isnan(heights[i, j]):
                        continue
                    steps = [(-1, -1), (-1, 1), (1, -1), (1, 1)] if diagonal else [(-1, 0), (1, 0), (0, -1), (0, 1)]
                    around = [(i + a * half, j + b * half) for a, b in steps]
                    known = [heights[p] for p in around if 0 <= p[0] < side and 0 <= p[1] < side]
                    heights[i, j] = np.mean(known) + (noise[i, j] - 0.5) * amplitude
        span, level = half, level + 1
    return heights


def test_heights_match_a_loop_over_points() -> None:
    found = diamond_square(3, 17, np.random.default_rng(0))
    draws = np.random.default_rng(0).random((3, 1 + 17 * 17))
    for heights, drawn in zip(found, draws, strict=True):
        expected = point_by_point(0.4 + 0.4 * drawn[0], drawn[1:].reshape(17, 17))
        np.testing.assert_allclose(heights, expected, atol=1e-12)


def test_a_size_between_powers_of_two_is_cut_out() -> None:
    assert diamond_square(2, 40, np.random.default_rng(0)).shape == (2, 40, 40)
    assert diamond_square(2, 32, np.random.default_rng(0)).shape == (2, 32, 32)


def test_backgrounds_are_light_and_differ() -> None:
    images = backgrounds(6, 32, np.random.default_rng(1))
    assert images.dtype == np.uint8
    assert images.shape == (6, 32, 32, 3)
    assert images.max(3).min() > 0
    assert len({image.tobytes() for image in images}) == 6
