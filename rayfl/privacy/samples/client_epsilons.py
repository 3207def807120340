"""The epsilons of all clients during a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from rayfl.data.pools import pool_number
from rayfl.local.spending import Mechanism, PrivacyAccounts, Spending, SpendingByClient
from rayfl.privacy.composition import history
from rayfl.privacy.samples.accounting import Accountant

EXACT_AT_ONCE = 64
"""Distinct histories up to which `each` asks the accountant for every client's epsilon; above, they are RDP bounds."""


class ClientEpsilons:
    """Adds up what clients spend, and keeps RDP bounds for all of them; the slower accountant is asked only for a few.

    Args:
        accountant: Computes epsilons.
        num_clients: How many clients there are.
    """

    def __init__(self, accountant: Accountant, num_clients: int) -> None:
        self._accountant, self._num_clients = accountant, num_clients
        self._pool = pool_number("clients", num_clients)
        self._accounts, self._discarded = PrivacyAccounts(), PrivacyAccounts()
        self._bounds = np.zeros(num_clients)
        self._stale: set[int] = set()

    def book(self, spent: SpendingByClient) -> None:
        """Adds the spending of a round."""
        self._accounts.book([spent])
        self._stale.update(range(self._num_clients) if self._pool in spent else spent)

    def charge_discarded(self, spent: Iterable[SpendingByClient]) -> None:
        """Replaces what is counted as spent in addition to the booked rounds."""
        self._discarded = PrivacyAccounts()
        self._discarded.book(spent)
        self._stale = set(range(self._num_clients))

    def spent(self) -> SpendingByClient:
        """The spending of every client so far, in the rounds that were booked."""
        return self._accounts.spent()

    def restore(self, spent: SpendingByClient) -> None:
        """Continues from earlier spending."""
        self._accounts.restore(spent)
        self._stale = set(range(self._num_clients))

    def maximum(self) -> float:
        """The largest epsilon of any client; see `Accountant.maximum_of`."""
        return self._accountant.maximum_of(self.bounds(), self.of)

    def median(self) -> float:
        """Returns the epsilon of the median client by RDP; of two, the one that spent more."""
        bounds = self.bounds()
        middle = int(np.argsort(bounds, kind="stable")[len(bounds) // 2])
        return self._accountant.epsilon(self.of(middle)) if bounds[middle] else 0.0

    def bounds(self) -> np.ndarray:
        """[clients] RDP bounds; exact where the accountant is `rdp`."""
        stale = sorted(client for client in self._stale if client < self._num_clients)
        if stale:
            self._bounds[stale] = self._accountant.bounds([self.of(client) for client in stale])
        self._stale = set()
        return self._bounds

    def each(self) -> tuple[np.ndarray, bool]:
        """[clients] every client's epsilon, and whether they are the accountant's or RDP bounds."""
        if self._accountant.name == "rdp":
            return self.bounds(), True
        distinct: set[object] = set()
        for client in range(self._num_clients):
            distinct.add(history(self.of(client)))
            if len(distinct) > EXACT_AT_ONCE:
                return self.bounds(), False
        return np.array([self._accountant.epsilon(self.of(client)) for client in range(self._num_clients)]), True

    def of(self, client: int) -> Spending:
        """Returns the spending of a client, including training on the pool of all clients' samples."""
        others = [self._accounts.of(self._pool), self._discarded.of(client), self._discarded.of(self._pool)]
        if not any(others):
            return self._accounts.of(client)
        total: Counter[Mechanism] = Counter(self._accounts.of(client))
        for spent in others:
            total.update(spent)
        return total

    def server(self) -> float | None:
        """Returns the epsilon of the server's samples; None if nothing was charged to them."""
        spent = self._accounts.of(pool_number("server", self._num_clients))
        return self._accountant.epsilon(spent) if spent else None
