"""The kernel of a wide two-layer ReLU network, and how well labels transfer from one set of samples to another.

CyclicFL (first version), section III.C; Du et al., "Gradient Descent Provably Optimizes Over-parameterized Neural
Networks", ICLR 2019, eq. 3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

MOST = 20_000
"""Largest number of samples in a set: their kernel takes 3.2 GB."""
RIDGE = 1e-6
"""Added to the diagonal, as a share of its mean: parallel inputs make the kernel singular."""


class Kappa(NamedTuple):
    """How badly labels learned on P explain those of Q.

    Attributes:
        kappa: ||y_Q - y_(P to Q)||^2.
        relative: kappa / ||y_Q||^2: 0 is perfectly transferable, 1 useless, above 1 harmful.
        smallest_p: The smallest eigenvalue of the kernel of P.
        smallest_q: The smallest eigenvalue of the kernel of Q.
    """

    kappa: float
    relative: float
    smallest_p: float
    smallest_q: float


def unit_rows(x: np.ndarray) -> np.ndarray:
    """float64 [n, d]: flattened inputs with norm 1; zero inputs stay zero."""
    rows = x.reshape(len(x), -1).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: np.ndarray = np.divide(rows, norms, out=rows, where=norms > 0)
    return unit


def arc_cosine(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """[n, m]: rho (pi - arccos rho) / (2 pi) of every pair of unit rows with scalar product rho."""
    rho = np.clip(p @ q.T, -1, 1)
    kernel: np.ndarray = rho * (np.pi - np.arccos(rho)) / (2 * np.pi)
    return kernel


def kappa(x_p: np.ndarray, y_p: np.ndarray, x_q: np.ndarray, y_q: np.ndarray, ridge: float = RIDGE) -> Kappa:
    """Compares labels of Q with their predictions from those of P.

    Args:
        x_p: [n, d] unit rows.
        y_p: [n, outputs].
        x_q: [m, d] unit rows.
        y_q: [m, outputs].
        ridge: Added to the diagonal of the kernel of P, as a share of its mean.
    """
    h_p = arc_cosine(x_p, x_p)
    smallest_p, smallest_q = (
        float(eigh(kernel, eigvals_only=True, subset_by_index=[0, 0])[0]) for kernel in (h_p, arc_cosine(x_q, x_q))
    )
    h_p[np.diag_indices_from(h_p)] += ridge * np.trace(h_p) / len(h_p)
    explained = arc_cosine(x_q, x_p) @ cho_solve(cho_factor(h_p, lower=True, overwrite_a=True), y_p)
    value = float(np.sum((y_q - explained) ** 2))
    return Kappa(value, value / float(np.sum(y_q**2)), smallest_p, smallest_q)
