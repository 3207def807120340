"""Rényi differential privacy of Poisson-sampled Gaussian mechanisms, by NumPy alone: fast enough for every client.

Mironov, Talwar and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019: at order a it is
log A_a / (a - 1) with A_a = E_(z ~ N(0, s^2)) (1 - q + q exp((2 z - 1) / (2 s^2)))^a, noise multiplier s, rate q.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rayfl.privacy.samples.spending import Mechanism, Spending

ORDERS = np.array([1 + tenth / 10 for tenth in range(1, 100)] + list(range(12, 64)), dtype=np.float64)
"""The orders of Opacus' RDPAccountant, so that both give the same epsilon."""

LEAST_SAMPLED_NOISE = 0.1
"""Below this noise multiplier the rate counts as 1, which gives an upper bound: nothing is private there anyway."""

SPREAD = 13.0
"""Standard deviations beyond which the normal density is nothing in float64."""

CLIENTS_AT_ONCE = 20_000


@lru_cache(maxsize=1 << 16)
def _rdp(noise_multiplier: float, rate: float) -> np.ndarray:
    if noise_multiplier == 0:
        return np.full(len(ORDERS), np.inf)
    if rate == 1 or noise_multiplier < LEAST_SAMPLED_NOISE:
        return np.asarray(ORDERS / (2 * noise_multiplier**2))
    # the integrand is smooth and decays like a normal density, for which the trapezoidal rule converges exponentially;
    # it peaks between 0 and a / s standard deviations, and its singularities are pi s away from the real axis
    width = min(0.25, noise_multiplier / 4)
    u = np.arange(-SPREAD, ORDERS[-1] / noise_multiplier + SPREAD, width)
    exponent = u / noise_multiplier - 1 / (2 * noise_multiplier**2)
    log_ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + exponent)
    terms = ORDERS[:, None] * log_ratio - u * u / 2
    largest = terms.max(axis=1)
    sums = np.exp(terms - largest[:, None]).sum(axis=1)
    log_a = largest + np.log(sums * (width / np.sqrt(2 * np.pi)))
    return np.asarray(np.maximum(log_a, 0) / (ORDERS - 1))


def rdp(mechanism: Mechanism) -> np.ndarray:
    """[orders] float64, the RDP of one use of a mechanism; infinite without noise."""
    return _rdp(mechanism.noise_multiplier, mechanism.rate)


def rdp_of(spending: Spending) -> np.ndarray:
    """[orders] float64, the RDP of a spending: parts compose in parallel, each with what touched all samples."""
    by_part: dict[str, np.ndarray] = {"": np.zeros(len(ORDERS))}
    for mechanism, times in spending.items():
        if times:
            before = by_part.get(mechanism.part, np.zeros(len(ORDERS)))
            by_part[mechanism.part] = before + times * rdp(mechanism)
    whole = by_part.pop("")
    return whole + np.max(list(by_part.values()), axis=0) if by_part else whole


def epsilon_of_rdp(spent: np.ndarray, delta: float) -> np.ndarray:
    """Converts RDP into epsilon: Balle et al., "Hypothesis Testing Interpretations and Rényi DP", 2020, theorem 21.

    Args:
        spent: [..., orders].
        delta: Of the guarantee.

    Returns:
        [...] at least 0; 0 where nothing was spent.
    """
    found = np.maximum((spent + conversion(delta)).min(axis=-1), 0.0)
    return np.where(spent.max(axis=-1) == 0, 0.0, found)


def conversion(delta: float) -> np.ndarray:
    """[orders] float64, what is added to the RDP of each order; epsilon is the least of the sums."""
    return np.asarray(np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1))


def epsilons_by_rdp(spendings: Sequence[Spending], delta: float) -> np.ndarray:
    """[spendings] float64, their epsilons. The RDP of a mechanism is computed once, however many clients used it."""
    found = np.empty(len(spendings))
    for start in range(0, len(spendings), CLIENTS_AT_ONCE):
        stop = min(start + CLIENTS_AT_ONCE, len(spendings))
        spent = np.stack([rdp_of(spending) for spending in spendings[start:stop]])
        found[start:stop] = epsilon_of_rdp(spent, delta)
    return found
