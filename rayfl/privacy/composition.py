"""Composition: computes epsilon from the mechanisms that were used, for both kinds of accounts.

By Rényi differential privacy, whose divergences add up, or by the numerical composition of privacy loss random
variables.

The Rényi divergence of a Gaussian mechanism on Poisson-sampled data (Mironov, Talwar and Zhang, "Rényi Differential
Privacy of the Sampled Gaussian Mechanism", 2019): at order a it is log A_a / (a - 1) with A_a = E_(z ~ N(0, s^2)) (1 -
q + q exp((2 z - 1) / (2 s^2)))^a, noise multiplier s, rate q.

Opacus' `compute_rdp` gives the same to 2e-12, but sums series order by order: 18 to 74 ms per mechanism (s from 4 down
to 0.7); the integral here, in NumPy, over all orders at once takes 0.2 to 1.7 ms. Every client size is a different
mechanism, so planning for 1 000 sizes takes 0.3 s instead of 37 s with a given noise, and 1.7 s with a target, whose
search tries several (10 000 sizes: 2.9 and 16 s; one core of a shared machine).

A client's budget is a Rényi filter (Feldman and Zrnic, "Individual Privacy Accounting via a Rényi Filter", NeurIPS
2021), which decides whether one more update still fits: mechanisms chosen during a run compose like others as long as
their total cost, at an order fixed beforehand, stays below a budget for that order. Here the orders are those of
Opacus, and an update fits while its client stays within the budget of any one of them. The order need not be fixed in
advance, because the cost of a client's updates depends on sizes, cohorts and noise, which are public, and never on the
samples themselves. For the same reason `prv` would be valid too, but it would take up to a second for every client of
every cohort, where this takes a sum."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np

from rayfl.errors import ScenarioError
from rayfl.local.spending import Mechanism, Spending

OPACUS_ORDERS = np.array([1 + tenth / 10 for tenth in range(1, 100)] + list(range(12, 64)), dtype=np.float64)
"""The orders of Opacus' RDPAccountant, for the same epsilon."""

WIDE_ORDERS = np.concatenate([np.arange(1.1, 11, 0.1), np.arange(11, 65), np.arange(68, 257, 4), [384.0, 512.0]])
"""Orders for cohorts, whose epsilons may be too small for Opacus' orders."""

LATTICE_ORDERS = np.concatenate([np.arange(2.0, 65.0), WIDE_ORDERS[WIDE_ORDERS > 64]])
"""The same for discrete noise, for which the effect of sampling is known only at integer orders."""


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Used = TypeVar("Used", bound=_Ordered)


def history(spent: Mapping[Used, int]) -> tuple[tuple[Used, int], ...]:
    """Returns the mechanisms that were used, sorted, each with its number of uses; epsilon depends on nothing else."""
    return tuple(sorted((mechanism, times) for mechanism, times in spent.items() if times))


def conversion(orders: np.ndarray, delta: float) -> np.ndarray:
    """Returns the term to add to the RDP of each order, float64 [orders]; epsilon is the minimum of the sums.

    Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, proposition 12; the
    same as Balle et al., "Hypothesis Testing Interpretations and Rényi DP", 2020, theorem 21.
    """
    return np.asarray(np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1))


def epsilon_of_rdp(rdp: np.ndarray, orders: np.ndarray, delta: float) -> np.ndarray:
    """Returns the epsilons, float64 [...], at least 0.

    Args:
        rdp: [..., orders]; an order that could not be computed (NaN) gives no bound and counts as infinite.
        orders: [orders], above 1.
        delta: Delta of the guarantee.
    """
    known = np.where(np.isnan(rdp), np.inf, rdp)
    return np.asarray(np.maximum((known + conversion(orders, delta)).min(axis=-1), 0.0))


def prv_epsilon(steps: Sequence[tuple[float, float, int]], delta: float, table: str) -> float:
    """Computes an upper bound on epsilon, within 0.012 of the true value, with Opacus' PRV accountant.

    Gopi, Lee and Wutschitz, "Numerical Composition of Differential Privacy", NeurIPS 2021. The first call is slow,
    because it imports Opacus, SciPy and PyTorch.

    Args:
        steps: (noise multiplier, rate, times) of each Poisson-sampled Gaussian mechanism; noise and rate above 0.
        delta: Delta of the guarantee.
        table: The table whose key `accountant` an error names: `local.dp` or `dp`.

    Raises:
        ScenarioError: It cannot be computed at this delta.
    """
    from opacus.accountants import PRVAccountant

    composed = PRVAccountant()
    composed.history = list(steps)
    # its warnings are expected here: an order at the edge of its grid, logarithms of 0 if the rate is 1
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            epsilon = float(composed.get_epsilon(delta))
        except (RuntimeError, ValueError) as error:
            raise ScenarioError(
                f"{table}: accountant 'prv' cannot compute epsilon at delta = {delta:g} ({error}); use accountant = "
                "'rdp', or a larger delta"
            ) from error
    return max(0.0, epsilon)


LEAST_SAMPLED_NOISE = 0.1
"""Below this noise multiplier the rate counts as 1, which is an upper bound; nothing is private there anyway."""

SPREAD = 13.0
"""Standard deviations beyond which the normal density vanishes in float64."""

CLIENTS_AT_ONCE = 20_000


@lru_cache(maxsize=1 << 16)
def _rdp(noise_multiplier: float, rate: float) -> np.ndarray:
    if noise_multiplier == 0:
        return np.full(len(OPACUS_ORDERS), np.inf)
    if rate == 1 or noise_multiplier < LEAST_SAMPLED_NOISE:
        return np.asarray(OPACUS_ORDERS / (2 * noise_multiplier**2))
    # the integrand is smooth and decays like a normal density, for which the trapezoidal rule converges exponentially;
    # it peaks between 0 and a / s standard deviations, and its singularities are pi s away from the real axis
    width = min(0.25, noise_multiplier / 4)
    u = np.arange(-SPREAD, OPACUS_ORDERS[-1] / noise_multiplier + SPREAD, width)
    exponent = u / noise_multiplier - 1 / (2 * noise_multiplier**2)
    log_ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + exponent)
    terms = OPACUS_ORDERS[:, None] * log_ratio - u * u / 2
    largest = terms.max(axis=1)
    sums = np.exp(terms - largest[:, None]).sum(axis=1)
    log_a = largest + np.log(sums * (width / np.sqrt(2 * np.pi)))
    return np.asarray(np.maximum(log_a, 0) / (OPACUS_ORDERS - 1))


def orders_of(secure: bool) -> np.ndarray:
    """Returns the orders at which an account is evaluated: Opacus', and for discrete noise the integers among them.

    At integer orders a sampled discrete Gaussian has the moments of a continuous one, since the sum over all integers x
    of exp(-(x - c)^2 / (2 s^2)) is the same for every integer c.
    """
    return OPACUS_ORDERS[OPACUS_ORDERS % 1 == 0] if secure else OPACUS_ORDERS


def rdp(mechanism: Mechanism) -> np.ndarray:
    """Returns the RDP of one use of a mechanism, float64 [orders]; infinite without noise."""
    return _rdp(mechanism.noise_multiplier, mechanism.rate)


def rdp_of(spending: Spending) -> np.ndarray:
    """Returns the RDP of a spending, float64 [orders]: parts compose in parallel, each with those on all samples."""
    by_part: dict[str, np.ndarray] = {"": np.zeros(len(OPACUS_ORDERS))}
    for mechanism, times in spending.items():
        if times:
            before = by_part.get(mechanism.part, np.zeros(len(OPACUS_ORDERS)))
            by_part[mechanism.part] = before + times * rdp(mechanism)
    whole = by_part.pop("")
    return whole + np.max(list(by_part.values()), axis=0) if by_part else whole


def epsilons_by_rdp(spendings: Sequence[Spending], delta: float, secure: bool = False) -> np.ndarray:
    """Returns the epsilons of spendings, float64; the RDP of a mechanism is computed once for all clients that used it.

    Args:
        spendings: One per client.
        delta: Delta of the guarantee.
        secure: Whether the noise was discrete, for which only integer orders are valid.
    """
    orders = orders_of(secure)
    known = np.isin(OPACUS_ORDERS, orders)
    all_epsilons = np.empty(len(spendings))
    for start in range(0, len(spendings), CLIENTS_AT_ONCE):
        stop = min(start + CLIENTS_AT_ONCE, len(spendings))
        spent = np.stack([rdp_of(spending) for spending in spendings[start:stop]])
        epsilons = epsilon_of_rdp(spent[:, known], orders, delta)
        all_epsilons[start:stop] = np.where(spent.any(axis=-1), epsilons, 0.0)  # 0 where nothing was spent
    return all_epsilons


class RenyiFilter:
    """Budgets at all orders that are equivalent to one epsilon.

    Args:
        max_epsilon: The budget.
        delta: Delta of the guarantee.
        secure: Whether the noise is discrete.
    """

    def __init__(self, max_epsilon: float, delta: float, secure: bool = False) -> None:
        orders = orders_of(secure)
        self._known = np.isin(OPACUS_ORDERS, orders)
        self._budgets = max_epsilon - conversion(orders, delta)

    def admits(self, spending: Spending) -> bool:
        """Whether a client may have spent this, including the update in question."""
        return bool((rdp_of(spending)[self._known] <= self._budgets).any())
