"""Colours of an object: grey levels map to hues, with one saturation and value per object."""

from __future__ import annotations

import numpy as np

from rayfl.data.fractals.streams import Uniform

_BLACK = 256


def coloured(grey: np.ndarray, rng: Uniform) -> np.ndarray:
    """Colours objects with hue floor(255 g + shift) modulo 256 and a random shift, saturation and value each.

    Args:
        grey: float32 [n, size, size] in [0, 1]; 0 stays black.
        rng: Draws the shift from [0, 255), the saturation from 255 [0.3, 1) and the value from 255 [0.5, 1).

    Returns:
        uint8 [n, size, size, 3], red, green and blue.
    """
    n, size, _ = grey.shape
    shift, saturation, value = rng.random((n, 3)).T
    palette = np.zeros((n, _BLACK + 1, 4), np.uint8)
    saturation, value = np.floor(255 * (0.3 + 0.7 * saturation)), np.floor(255 * (0.5 + 0.5 * value))
    palette[:, :_BLACK, :3] = hsv_to_rgb(np.arange(_BLACK), saturation[:, None], value[:, None])
    hue = (grey * np.float32(255) + (255 * shift).astype(np.float32)[:, None, None]).astype(np.int32)
    hue &= 255
    hue[grey == 0] = _BLACK
    hue += (np.arange(n, dtype=np.int32) * (_BLACK + 1))[:, None, None]
    words = np.take(palette.view(np.uint32).ravel(), hue)  # a colour is one word, so a third of the look-ups
    return np.asarray(words.view(np.uint8).reshape(n, size, size, 4)[..., :3])


def hsv_to_rgb(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Converts colours in the 8-bit format of OpenCV, in which one unit of hue is two degrees.

    Args:
        hue: [...] integers in [0, 256).
        saturation: [...] in [0, 255].
        value: [...] in [0, 255].

    Returns:
        uint8 [..., 3].
    """
    greyness = saturation[..., None] / 255 * (1 - _PURE_HUES[hue])
    return np.asarray(np.rint(value[..., None] * (1 - greyness)), np.uint8)


def _pure_hues() -> np.ndarray:
    """float64 [256, 3] in [0, 1]: hues at full saturation and value."""
    sextant = np.arange(256)[:, None] * 2 % 360 / 60
    return np.asarray(np.clip(np.abs((sextant + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1))


_PURE_HUES = _pure_hues()
