"""The budget of a client: a Rényi filter says whether one more update still fits.

Feldman and Zrnic, "Individual Privacy Accounting via a Rényi Filter", NeurIPS 2021: mechanisms that are chosen as a run
goes on compose like others as long as what they cost together, at an order that was fixed beforehand, stays below a
budget of that order. Here the orders are those of Opacus, and an update fits while its client stays within the budget
of one of them. Which one need not be fixed, since what a client's updates cost depends on sizes, cohorts and noise,
which are public, and never on what its samples are. For the same reason `prv` would be valid too; but it would take up
to a second for every client of every cohort, where this takes a sum.
"""

from __future__ import annotations

import numpy as np

from rayfl.local.spending import Spending
from rayfl.privacy.composition import OPACUS_ORDERS, conversion
from rayfl.privacy.samples.rdp import orders_of, rdp_of


class RenyiFilter:
    """Budgets of all orders that amount to one epsilon.

    Args:
        max_epsilon: The budget.
        delta: Of the guarantee.
        secure: Whether the noise is discrete.
    """

    def __init__(self, max_epsilon: float, delta: float, secure: bool = False) -> None:
        orders = orders_of(secure)
        self._known = np.isin(OPACUS_ORDERS, orders)
        self._budgets = max_epsilon - conversion(orders, delta)

    def admits(self, spending: Spending) -> bool:
        """Whether a client may have spent this, the update in question included."""
        return bool((rdp_of(spending)[self._known] <= self._budgets).any())
