"""Composition: from the mechanisms that were used to epsilon, for the accounts of samples and of clients.

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
"""The orders of Opacus' RDPAccountant, so that both give the same epsilon."""

WIDE_ORDERS = np.concatenate([np.arange(1.1, 11, 0.1), np.arange(11, 65), np.arange(68, 257, 4), [384.0, 512.0]])
"""Orders for cohorts, whose epsilons may be smaller than any that Opacus' orders can tell."""

LATTICE_ORDERS = np.concatenate([np.arange(2.0, 65.0), WIDE_ORDERS[WIDE_ORDERS > 64]])
"""The same for discrete noise, of which sampling is known at integer orders alone."""


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Used = TypeVar("Used", bound=_Ordered)


def history(spent: Mapping[Used, int]) -> tuple[tuple[Used, int], ...]:
    """The mechanisms that were used at all, in order, each with how often: a key, since epsilon follows from it."""
    return tuple(sorted((mechanism, times) for mechanism, times in spent.items() if times))


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


def prv_epsilon(steps: Sequence[tuple[float, float, int]], delta: float, table: str) -> float:
    """An upper bound on epsilon, within 0.012 of the true one: Gopi, Lee and Wutschitz, NeurIPS 2021, by Opacus.

    Slow on its first call, which imports Opacus, SciPy and PyTorch.

    Args:
        steps: (noise multiplier, rate, times) of each Poisson-sampled Gaussian mechanism; noise and rate above 0.
        delta: Of the guarantee.
        table: Whose key `accountant` is to blame in an error: `local.dp` or `dp`.

    Raises:
        ScenarioError: It cannot be computed at this delta.
    """
    from opacus.accountants import PRVAccountant

    composed = PRVAccountant()
    composed.history = list(steps)
    # it warns of what is no news here: an order at the edge of its grid, logarithms of 0 where the rate is 1
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
