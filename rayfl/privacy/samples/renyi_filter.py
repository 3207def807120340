"""A client's budget: a Rényi filter decides whether one more update still fits.

Feldman and Zrnic, "Individual Privacy Accounting via a Rényi Filter", NeurIPS 2021: mechanisms chosen during a run
compose like others as long as their total cost, at an order fixed beforehand, stays below a budget for that order. Here
the orders are those of Opacus, and an update fits while its client stays within the budget of any one of them. The
order need not be fixed in advance, because the cost of a client's updates depends on sizes, cohorts and noise, which
are public, and never on the samples themselves. For the same reason `prv` would be valid too, but it would take up to a
second for every client of every cohort, where this takes a sum.
"""

from __future__ import annotations

import numpy as np

from rayfl.local.spending import Spending
from rayfl.privacy.composition import OPACUS_ORDERS, conversion
from rayfl.privacy.samples.rdp import orders_of, rdp_of


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
