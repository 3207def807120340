"""Epsilon of the releases of rounds about clients: Poisson cohorts, fixed-size cohorts, and no amplification."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from rayfl.privacy.clients.without_replacement import rdp_without_replacement
from rayfl.privacy.composition import LATTICE_ORDERS, WIDE_ORDERS, epsilon_of_rdp, prv_epsilon

Sampling = Literal["poisson", "without_replacement", "none"]

FEW_ORDERS = np.array([1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
"""Enough to tell whether the PRV accountant can compute an epsilon."""

PRV_UP_TO = 100.0
"""Above this epsilon the PRV accountant's grid takes gigabytes, and the upper bound of RDP is used instead."""


NO_NOISE = 1e-100
"""Below it, squares underflow float64; such noise hides nothing and counts as none."""


@dataclass(frozen=True, order=True)
class Release:
    """One round's Gaussian mechanism on clients.

    Attributes:
        noise_multiplier: Standard deviation of the noise as a multiple of the sensitivity: C if neighbours differ by
            one additional client, 2C if one is replaced.
        sampling: How the cohort was drawn; `none` if the participants are known.
        rate: Share of the clients in a cohort, in (0, 1]; 1 with `none`.
    """

    noise_multiplier: float
    sampling: Sampling
    rate: float = 1.0


History = tuple[tuple[Release, int], ...]
"""How often each mechanism was used; see `rayfl.privacy.composition`."""


def accountants_of(samplings: set[Sampling], secure: bool = False) -> tuple[str, ...]:
    """Returns which accountants can compose rounds with these samplings, the tightest first.

    Noise without sampling needs none: composed Gaussians are one Gaussian with a known epsilon (`exact`). For discrete
    noise (`secure`) this holds only for Rényi divergences.
    """
    if secure:
        return ("rdp",)
    if samplings <= {"none"}:
        return ("exact",)
    return ("prv", "rdp") if samplings == {"poisson"} else ("rdp",)


@lru_cache(maxsize=4096)
def epsilon_of(spent: History, delta: float, accountant: str, secure: bool = False) -> float:
    """Epsilon of a history, an upper bound; infinite without noise.

    It never exceeds the epsilon of the same rounds with all clients. Given the cohorts of all rounds, whose draws do
    not depend on the data, the rounds release Gaussians that differ by at most as much. And delta(epsilon) of a mixture
    is at most the mean over its components, since the hockey-stick divergence is jointly convex.

    Args:
        spent: The releases.
        delta: Delta of the guarantee.
        accountant: `prv` (only Poisson cohorts), `rdp`, or `exact` (no sampling).
        secure: Whether the noise was discrete; then only `rdp`.

    Raises:
        ScenarioError: `prv` cannot compute it at this delta.
    """
    if not spent:
        return 0.0
    if any(release.noise_multiplier < NO_NOISE for release, _ in spent):
        return math.inf
    if secure:  # for discrete noise only RDP is known, which is capped order by order
        return _by_rdp(spent, delta, LATTICE_ORDERS)
    unsampled = gaussian_epsilon(math.sqrt(sum(times / release.noise_multiplier**2 for release, times in spent)), delta)
    if accountant == "exact":
        return unsampled
    if accountant == "rdp" or _by_rdp(spent, delta, FEW_ORDERS) > PRV_UP_TO:
        return min(_by_rdp(spent, delta, WIDE_ORDERS), unsampled)
    return prv_epsilon([(release.noise_multiplier, release.rate, times) for release, times in spent], delta, "dp")


def rdp_of_release(release: Release, orders: np.ndarray) -> np.ndarray:
    """Returns the Rényi divergences of one round, float64 [orders]."""
    if release.sampling == "without_replacement":
        return rdp_without_replacement(release.rate, release.noise_multiplier, orders)
    if release.sampling == "none" or release.rate == 1:
        return orders / (2 * release.noise_multiplier**2)
    from opacus.accountants.analysis.rdp import compute_rdp

    found = compute_rdp(q=release.rate, noise_multiplier=release.noise_multiplier, steps=1, orders=orders.tolist())
    return np.asarray(found, np.float64)


def _by_rdp(spent: History, delta: float, orders: np.ndarray) -> float:
    spent_at = np.sum([times * rdp_of_release(release, orders) for release, times in spent], axis=0)
    return float(epsilon_of_rdp(spent_at, orders, delta))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism with sensitivity mu times its noise: Balle and Wang (ICML 2018), theorem 8."""
    low, high = 0.0, 1.0
    if _gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    while _gaussian_delta(mu, high) > delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def _gaussian_delta(mu: float, epsilon: float) -> float:
    from scipy.special import log_ndtr

    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(np.exp(first) * -np.expm1(min(second - first, 0.0)))
