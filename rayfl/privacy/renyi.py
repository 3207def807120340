"""From Rényi differential privacy to epsilon, for the accounts of samples and of clients."""

from __future__ import annotations

import numpy as np

OPACUS_ORDERS = np.array([1 + tenth / 10 for tenth in range(1, 100)] + list(range(12, 64)), dtype=np.float64)
"""The orders of Opacus' RDPAccountant, so that both give the same epsilon."""

WIDE_ORDERS = np.concatenate([np.arange(1.1, 11, 0.1), np.arange(11, 65), np.arange(68, 257, 4), [384.0, 512.0]])
"""Orders for cohorts, whose epsilons may be smaller than any that Opacus' orders can tell."""


def conversion(orders: np.ndarray, delta: float) -> np.ndarray:
    """[orders] float64, what is added to the RDP of each order; epsilon is the least of the sums.

    Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, proposition 12; the
    same as Balle et al., "Hypothesis Testing Interpretations and Rényi DP", 2020, theorem 21.
    """
    return np.asarray(np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1))


def epsilon_of_rdp(rdp: np.ndarray, orders: np.ndarray, delta: float) -> np.ndarray:
    """[...] float64, the epsilons, at least 0.

    Args:
        rdp: [..., orders]; an order that could not be computed (NaN) bounds nothing, and counts as infinite.
        orders: [orders], above 1.
        delta: Of the guarantee.
    """
    known = np.where(np.isnan(rdp), np.inf, rdp)
    return np.asarray(np.maximum((known + conversion(orders, delta)).min(axis=-1), 0.0))
