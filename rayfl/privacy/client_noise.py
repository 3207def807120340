"""Standard normal numbers for client-level privacy, from a stream of the scenario's or from the operating system."""

from __future__ import annotations

import os

import numpy as np

SUMMANDS = 4
"""Of a secure draw: sums of several hide the float64 grid of a single one (Holohan and Braghin, ESORICS 2021)."""


def standard_normal(stream: np.random.Generator | None, number: int) -> np.ndarray:
    """Draws standard normal numbers.

    Args:
        stream: Where from; None for the operating system's cryptographic source.
        number: How many.

    Returns:
        [number] float64.
    """
    if stream is not None:
        return stream.standard_normal(number)
    uniform = (np.frombuffer(os.urandom(8 * 2 * SUMMANDS * number), np.uint64) >> np.uint64(11)) * 2.0**-53
    radius, angle = uniform.reshape(2, SUMMANDS, number)
    # 1 - u lies in (0, 1]
    normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)
    scaled: np.ndarray = normal.sum(axis=0) / np.sqrt(SUMMANDS)
    return scaled
