"""Epsilon of what rounds release about clients: Poisson cohorts, fixed-size cohorts, and no amplification at all."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from rayfl.privacy.clients.without_replacement import rdp_without_replacement

Sampling = Literal["poisson", "without_replacement", "none"]

ORDERS = np.concatenate([np.arange(1.1, 11, 0.1), np.arange(11, 65), np.arange(68, 257, 4), [384.0, 512.0]])
"""Orders of Rényi differential privacy."""

FEW_ORDERS = np.array([1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
"""Enough to tell an epsilon that the PRV accountant can compute from one that it cannot."""

PRV_UP_TO = 100.0
"""Above this epsilon the grid of the PRV accountant takes gigabytes, and RDP's upper bound stands instead."""


@dataclass(frozen=True, order=True)
class Release:
    """One round's Gaussian mechanism on clients.

    Attributes:
        noise_multiplier: Standard deviation of the noise as a multiple of the sensitivity: C where neighbours differ by
            one client more, 2C where one is replaced.
        sampling: How the cohort was drawn; `none` where who takes part is known.
        rate: Share of the clients in a cohort, in (0, 1]; 1 with `none`.
    """

    noise_multiplier: float
    sampling: Sampling
    rate: float = 1.0


History = tuple[tuple[Release, int], ...]
"""How often each mechanism was used; a tuple, so that equal histories are looked up."""


def history(releases: Mapping[Release, int]) -> History:
    """A history of those that were used at all, in order."""
    return tuple(sorted((release, times) for release, times in releases.items() if times))


def accountants_of(samplings: set[Sampling]) -> tuple[str, ...]:
    """Which accountants can compose rounds of these samplings, the tightest first.

    Noise without sampling alone needs none: composed Gaussians are one Gaussian, whose epsilon is known (`exact`).
    """
    if samplings <= {"none"}:
        return ("exact",)
    return ("prv", "rdp") if samplings == {"poisson"} else ("rdp",)


@lru_cache(maxsize=4096)
def epsilon_of(spent: History, delta: float, accountant: str) -> float:
    """Epsilon of a history, an upper bound; infinite without noise.

    Args:
        spent: What was released.
        delta: Of the guarantee.
        accountant: `prv` (Poisson cohorts alone), `rdp`, or `exact` (no sampling).
    """
    if not spent:
        return 0.0
    if any(release.noise_multiplier == 0 for release, _ in spent):
        return math.inf
    if accountant == "exact":
        return gaussian_epsilon(math.sqrt(sum(times / release.noise_multiplier**2 for release, times in spent)), delta)
    if accountant == "rdp" or _by_rdp(spent, delta, FEW_ORDERS) > PRV_UP_TO:
        return _by_rdp(spent, delta, ORDERS)
    from opacus.accountants import PRVAccountant

    composed = PRVAccountant()
    composed.history = [(release.noise_multiplier, release.rate, times) for release, times in spent]
    with warnings.catch_warnings():
        # of the RDP bound that only says how wide PRV's grid has to be
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        return max(0.0, float(composed.get_epsilon(delta)))


def rdp_of(release: Release, orders: np.ndarray) -> np.ndarray:
    """[orders] float64, Rényi divergences of one round."""
    if release.sampling == "without_replacement":
        return rdp_without_replacement(release.rate, release.noise_multiplier, orders)
    if release.sampling == "none" or release.rate == 1:
        return orders / (2 * release.noise_multiplier**2)
    from opacus.accountants.analysis.rdp import compute_rdp

    found = compute_rdp(q=release.rate, noise_multiplier=release.noise_multiplier, steps=1, orders=orders.tolist())
    return np.asarray(found, np.float64)


def _by_rdp(spent: History, delta: float, orders: np.ndarray) -> float:
    """Canonne, Kamath and Steinke (NeurIPS 2020), proposition 12: the best over some orders."""
    rdp = np.sum([times * rdp_of(release, orders) for release, times in spent], axis=0)
    found = rdp + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(0.0, float(np.nanmin(found)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism of sensitivity mu times its noise: Balle and Wang (ICML 2018), theorem 8."""
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
