"""Jitter of the parameters of a code before rendering: one of its maps is scaled."""

from __future__ import annotations

import numpy as np

from rayfl.data.fractals.codes import Codes
from rayfl.data.fractals.streams import Uniform

LEAST_FACTOR, MOST_FACTOR = 0.8, 1.1
ATTEMPTS = 4


def jittered(codes: Codes, rng: Uniform) -> Codes:
    """Scales one map of each code, matrix and shift, by a factor uniform in [0.8, 1.1).

    If a singular value would exceed 1, factor and map are drawn again, up to four times in total; after that the code
    stays unchanged.
    """
    n = len(codes)
    draws = rng.random((n, ATTEMPTS, 2))
    chosen = (draws[..., 0] * codes.sizes[:, None]).astype(np.int64)
    factors = LEAST_FACTOR + (MOST_FACTOR - LEAST_FACTOR) * draws[..., 1]
    contracts = largest_singular_value(codes.maps)[np.arange(n)[:, None], chosen] * factors <= 1
    first = contracts.argmax(1)
    scaled = np.flatnonzero(contracts.any(1))
    maps = codes.maps.copy()
    maps[scaled, chosen[scaled, first[scaled]]] *= factors[scaled, first[scaled]][:, None, None]
    return Codes(maps, codes.sizes)


def largest_singular_value(maps: np.ndarray) -> np.ndarray:
    """The largest singular value of each 2 x 2 matrix of maps [..., 2, 3], in closed form."""
    (a, b), (c, d) = np.moveaxis(maps[..., :2], (-2, -1), (0, 1))
    return np.asarray((np.hypot(a + d, c - b) + np.hypot(a - d, c + b)) / 2)
