"""Colours are those of OpenCV's 8-bit HSV, computed here by the standard library's colorsys in float64."""

import colorsys

import numpy as np

from rayfl.data.fractals.canvas import coloured, hsv_to_rgb


def opencv_colour(hue: int, saturation: float, value: float) -> list[float]:
    return [255 * c for c in colorsys.hsv_to_rgb(2 * hue % 360 / 360, saturation / 255, value / 255)]


def test_a_unit_of_hue_is_two_degrees() -> None:
    rng = np.random.default_rng(0)
    saturation, value = rng.integers(0, 256, (2, 40))
    found = hsv_to_rgb(np.arange(256), saturation[:, None], value[:, None])
    expected = [[opencv_colour(h, s, v) for h in range(256)] for s, v in zip(saturation, value, strict=True)]
    assert np.abs(found - np.array(expected)).max() <= 0.5 + 1e-9
    assert hsv_to_rgb(np.array([0, 60, 120, 180]), np.array(255), np.array(255)).tolist() == [
        [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 0, 0]
    ]  # fmt: skip


def test_grey_levels_map_to_hues_and_zero_stays_black() -> None:
    grey = np.random.default_rng(1).random((20, 9, 9), np.float32)
    grey[:, 0] = 0
    found = coloured(grey, np.random.default_rng(2))
    draws = np.random.default_rng(2).random((20, 3))
    wrong = 0
    for image, levels, (shift, s, v) in zip(found, grey, draws, strict=True):
        saturation, value = int(255 * (0.3 + 0.7 * s)), int(255 * (0.5 + 0.5 * v))
        for pixel, level in zip(image.reshape(-1, 3), levels.ravel(), strict=True):
            hue = int(255 * float(level) + 255 * shift) % 256
            expected = opencv_colour(hue, saturation, value) if level else [0, 0, 0]
            wrong += np.abs(pixel - np.array(expected)).max() > 0.5 + 1e-9
    assert wrong <= 2  # of 1 620, where float32 rounds to the next hue


def test_saturation_and_value_fill_their_ranges() -> None:
    found = coloured(np.ones((3000, 1, 1), np.float32), np.random.default_rng(3))[:, 0, 0].astype(float)
    value, least = found.max(1), found.min(1)
    assert 127 <= value.min() <= 129 and 252 <= value.max() <= 254  # noqa: PT018
    saturation = 1 - least / value
    assert 0.28 < saturation.min() < 0.32
    assert saturation.max() > 0.98
