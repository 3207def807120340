"""Composition: computes epsilon from the mechanisms that were used, for both kinds of accounts.

By Rényi differential privacy, whose divergences add up, or by the numerical composition of privacy loss random
variables.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from rayfl.errors import ScenarioError

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
            found = float(composed.get_epsilon(delta))
        except (RuntimeError, ValueError) as error:
            raise ScenarioError(
                f"{table}: accountant 'prv' cannot compute epsilon at delta = {delta:g} ({error}); use accountant = "
                "'rdp', or a larger delta"
            ) from error
    return max(0.0, found)
