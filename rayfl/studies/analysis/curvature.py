"""The extreme eigenvalues of a Hessian, from its products with vectors, by Lanczos' method.

Lanczos, "An iteration method for the solution of the eigenvalue problem", 1950; without reorthogonalisation, which
repeats eigenvalues but leaves the extreme ones right (Paige, 1972).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal

STEPS = 30
CONVERGED = 1e-3
"""Both ends are as good as exact when their residuals are below this share of the largest absolute eigenvalue."""

ROUNDING = 1e-4
"""The share of the largest absolute eigenvalue that products in float32 cannot tell from zero."""

DENSE = 0.01
"""The same for the smallest eigenvalue where eigenvalues lie densely.

The smallest Ritz value of K steps then lies above the smallest eigenvalue by about (pi / 2 K)^2 of the largest.
"""


class Curvature(NamedTuple):
    """The ends of a spectrum.

    Attributes:
        largest: The largest absolute eigenvalue.
        smallest: The smallest eigenvalue; 0 where it cannot be told from it.
    """

    largest: float
    smallest: float


def curvature(product: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> Curvature:
    """The extreme eigenvalues of a symmetric matrix, after at most `STEPS` products.

    Args:
        product: The matrix times a vector, float64 [n].
        start: [n], a random vector; zeros stay zeros, so that padding does not count as a flat direction.
    """
    before, vector, off = np.zeros_like(start), start / np.linalg.norm(start), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        image = product(vector)
        diagonal.append(float(vector @ image))
        image -= diagonal[-1] * vector + off * before
        off = float(np.linalg.norm(image))
        values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(beside))
        largest, smallest = float(np.abs(values[[0, -1]]).max()), float(values[0])
        exhausted = off <= ROUNDING * largest
        if exhausted or len(diagonal) == STEPS or (off * np.abs(vectors[-1, [0, -1]]) <= CONVERGED * largest).all():
            break
        beside.append(off)
        before, vector = vector, image / off
    doubtful = ROUNDING if exhausted else DENSE
    return Curvature(largest, 0.0 if -ROUNDING * largest <= smallest <= doubtful * largest else smallest)
