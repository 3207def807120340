"""Epsilon of the releases of rounds about clients: Poisson cohorts, fixed-size cohorts, and no amplification.

Cohorts of fixed size, drawn without replacement: Wang, Balle and Kasiviswanathan, "Subsampled Rényi Differential
Privacy and Analytical Moments Accountant", AISTATS 2019, theorem 9, with the tighter terms of theorem 27
(arXiv:1808.00087). Neighbours then differ by replacing one client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from rayfl.privacy.composition import LATTICE_ORDERS, WIDE_ORDERS, epsilon_of_rdp, prv_epsilon

LOSS_STEP = 1 / 16
"""Step of the integral over the privacy loss; for such a smooth function the trapezoid rule is exact up to rounding."""

LEAST_AMPLIFIED_NOISE = 0.05
"""Below this noise no amplification is claimed; a single round with all clients has an epsilon above 200 there."""


def rdp_without_replacement(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """Upper bounds on the Rényi divergences of one round.

    With gamma the rate and eps(j) = j / (2 sigma^2), for integer orders

        exp((a - 1) rdp(a)) <= 1 + sum_{j=2}^a gamma^j binom(a, j) t_j,
        t_2 = min(4 (e^eps(2) - 1), 2 e^eps(2)),
        t_j = min(4 sqrt(B(2 floor(j / 2)) B(2 ceil(j / 2))), 2 e^((j - 1) eps(j))),

    where B(l) is the l-th moment of p/q - 1 of the two Gaussians. Between integers, interpolating
    (a - 1) rdp(a) gives an upper bound, since it is convex (corollary 10).

    A cohort is never worse than all clients, so rdp(a) <= a / (2 sigma^2): a round is a mixture over cohorts, whose
    weights do not depend on the data, of Gaussians that differ by one sensitivity at most; exp((a - 1) D_a(P || Q)) is
    jointly convex in (P, Q) (van Erven and Harremoes, 2014, theorem 13), hence at most its mean over cohorts, and none
    of those exceeds exp((a - 1) a / (2 sigma^2)). Below `LEAST_AMPLIFIED_NOISE` only this bound is used: the sum
    above would need an integral over a range of 1 / sigma, and for such large losses its factor 2 cancels the gain from
    sampling.

    Args:
        rate: Size of the cohort as a share of all clients, in (0, 1].
        noise_multiplier: Standard deviation of the noise as a multiple of the sensitivity to replacing one client.
        orders: [n], above 1.

    Returns:
        [n] float64.
    """
    unsampled: np.ndarray = orders / (2 * noise_multiplier**2)
    if rate == 1 or noise_multiplier < LEAST_AMPLIFIED_NOISE:
        return unsampled
    largest = int(np.ceil(orders.max()))
    log_moments = _log_moments(rate, noise_multiplier, largest)
    lower = np.floor(orders).astype(np.int64)
    upper = np.ceil(orders).astype(np.int64)
    share = orders - lower
    bound = ((1 - share) * log_moments[lower] + share * log_moments[upper]) / (orders - 1)
    capped: np.ndarray = np.minimum(bound, unsampled)
    return capped


def _log_moments(rate: float, sigma: float, largest: int) -> np.ndarray:
    """The bound on (a - 1) rdp(a) by integer order a, from 0 to the largest; 0 for a = 0 and 1."""
    j = np.arange(2, largest + 1)
    twos = _log_even_moments(sigma, largest + 1)
    by_moments = np.log(4) + (twos[j // 2] + twos[(j + 1) // 2]) / 2
    terms = np.minimum(by_moments, np.log(2) + (j - 1) * j / (2 * sigma**2))
    eps = 1 / sigma**2
    terms[0] = min(np.log(4) + eps + np.log(-np.expm1(-eps)), np.log(2) + eps)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, largest + 1)))])
    log_moments = np.zeros(largest + 1)
    for a in range(2, largest + 1):
        used = j[: a - 1]
        binomials = log_factorial[a] - log_factorial[used] - log_factorial[a - used]
        exponents = binomials + used * np.log(rate) + terms[: a - 1]
        log_moments[a] = np.logaddexp(0.0, _log_sum(exponents))
    return log_moments


def _log_even_moments(sigma: float, largest: int) -> np.ndarray:
    """By l / 2, from 0: the logarithm of B(l), the mean of (e^(x / sigma - 1 / (2 sigma^2)) - 1)^l, x standard normal.

    Forward differences of exp((l - 1) eps(l)) would give it too, but with cancellation; for even l the integrand is
    never negative.
    """
    exponents = 2 * np.arange(largest // 2 + 1)
    x = np.arange(-40.0, 40.0 + largest / sigma, LOSS_STEP)
    loss = x / sigma - 1 / (2 * sigma**2)
    with np.errstate(divide="ignore"):
        # log|e^u - 1| without overflow
        log_difference = np.maximum(loss, 0) + np.log(-np.expm1(-np.abs(loss)))
    density = -(x**2) / 2 - np.log(2 * np.pi) / 2 + np.log(LOSS_STEP)
    moments = np.zeros(len(exponents))
    for place, exponent in enumerate(exponents[1:], start=1):
        moments[place] = _log_sum(exponent * log_difference + density)
    return moments


def _log_sum(exponents: np.ndarray) -> float:
    largest = exponents.max()
    return float(largest + np.log(np.exp(exponents - largest).sum()))


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

    rdp = compute_rdp(q=release.rate, noise_multiplier=release.noise_multiplier, steps=1, orders=orders.tolist())
    return np.asarray(rdp, np.float64)


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
