"""Epsilon of privacy spending, from Opacus' accountants, for one client and for all of them during a run.

Slow on first use: needs Opacus, SciPy and PyTorch. `prv` gives Gopi et al.'s upper bound on epsilon, within 0.012 of
the true one; every new history takes about 0.2 to 0.8 s. NumPy computes RDP bounds for all clients in seconds, but they
have another order: the client that has spent the most by RDP may not have by `prv`. So `maximum` asks `prv` in
descending order of the bounds until the next bound is no larger than what it has found, and skips histories that an
earlier one dominates.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from rayfl.config.privacy import SampleDP
from rayfl.data.held_out import pool_number
from rayfl.local.spending import Mechanism, PrivacyAccounts, Spending, SpendingByClient
from rayfl.privacy.composition import epsilons_by_rdp, history, orders_of, prv_epsilon

LARGEST_PRV = 64.0
"""The RDP epsilon above which `prv` is not used: its grids exceed memory and float64, and nothing is private anyway."""

MOST_ASKED = 64
"""Number of histories for which `maximum` asks `prv`; for all others it uses their largest RDP bound."""

Steps = tuple[tuple[float, float, int], ...]
"""(noise multiplier, rate, steps), as Opacus' accountants keep them."""


class Accountant:
    """Computes epsilons at one delta, each history once.

    Args:
        name: `prv` or `rdp`.
        delta: Delta of the guarantee.
        secure: Whether the noise is discrete; then only `rdp`.
    """

    def __init__(self, name: Literal["prv", "rdp"], delta: float, secure: bool = False) -> None:
        self.name, self.delta, self.secure = name, delta, secure

    def epsilon(self, spending: Spending) -> float:
        """Returns the epsilon of one client over every mechanism that touched its samples.

        Parts that are drawn once and do not overlap compose in parallel: a sample is in only one of them, so epsilon is
        the largest over the parts, each combined with what touched all samples.

        Returns:
            Infinite if something was released without noise. Above `LARGEST_PRV` it is the RDP bound.

        Raises:
            ScenarioError: The accountant cannot compute it at this delta.
        """
        return max((_epsilon(self.name, self.delta, self.secure, steps) for steps in _by_part(spending)), default=0.0)

    def bounds(self, spendings: Sequence[Spending]) -> np.ndarray:
        """[spendings] upper bounds by RDP, for any number of clients; exactly the epsilons of the accountant `rdp`."""
        distinct = {history(spending): spending for spending in spendings}
        epsilons = dict(zip(distinct, epsilons_by_rdp(list(distinct.values()), self.delta, self.secure), strict=True))
        return np.array([epsilons[history(spending)] for spending in spendings])

    def maximum(self, spendings: Sequence[Spending], enough: float = math.inf) -> float:
        """Returns the largest epsilon of these clients; see `maximum_of`."""
        return self.maximum_of(self.bounds(spendings), spendings.__getitem__, enough)

    def maximum_of(self, bounds: np.ndarray, spending: Callable[[int], Spending], enough: float = math.inf) -> float:
        """Returns the largest epsilon of any client, an upper bound for all of them.

        With `prv` it is that of the client that has spent the most, as long as at most `MOST_ASKED` histories may be
        the costliest; otherwise it may be an RDP bound.

        Args:
            bounds: [clients], by RDP.
            spending: Returns the spending of a client; called only for clients that may have spent the most.
            enough: The search may end at any epsilon above this.
        """
        if self.name == "rdp":
            return float(bounds.max(initial=0.0))
        largest, asked, seen = 0.0, list[Steps](), set[object]()
        for place in np.argsort(-bounds, kind="stable"):
            if bounds[place] <= largest or largest > enough:
                break
            spent = spending(int(place))
            if (known := history(spent)) in seen:
                continue
            seen.add(known)
            parts = _by_part(spent)
            if all(any(dominates(costlier, part) for costlier in asked) for part in parts):
                continue
            if len(asked) >= MOST_ASKED:
                return float(bounds[place])
            asked += parts
            largest = max(largest, self.epsilon(spent))
        return largest


def accountant_of(dp: SampleDP) -> Accountant:
    """Returns the accountant of a run, from any phase with `local.dp`; all of them name the same."""
    return Accountant(dp.accountant, dp.delta, dp.secure)


def dominates(one: Steps, other: Steps) -> bool:
    """Whether every step of the other can be paired with a step of this one, of the same noise and at least its rate.

    If true, this history costs at least as much with any accountant; if false, nothing follows. Drawing a sample with a
    smaller rate is the same as drawing it with the larger rate and then keeping it by chance. So a Gaussian mechanism
    with a larger rate dominates one with a smaller rate and the same noise, at every delta, and so does a composition
    of more of them (the hockey-stick divergence is jointly convex, and composition preserves the order).
    """
    spare: Counter[float] = Counter()
    tagged = [(*step, True) for step in one] + [(*step, False) for step in other]
    # by descending rate; at equal rates, those of `one` first
    for noise, _, number, available in sorted(tagged, key=lambda step: (-step[1], not step[3])):
        spare[noise] += number if available else -number
        if spare[noise] < 0:
            return False
    return True


def _by_part(spending: Spending) -> list[Steps]:
    """Returns the steps that touched the samples of each part."""
    used = [(mechanism, steps) for mechanism, steps in spending.items() if steps]
    parts = {mechanism.part for mechanism, _ in used if mechanism.part} or {""}
    return [_steps([(m, steps) for m, steps in used if m.part in ("", part)]) for part in sorted(parts)]


def _steps(used: Sequence[tuple[Mechanism, int]]) -> Steps:
    steps: dict[tuple[float, float], int] = {}
    for mechanism, number in used:
        key = mechanism.noise_multiplier, mechanism.rate
        steps[key] = steps.get(key, 0) + number
    return tuple((noise, rate, number) for (noise, rate), number in sorted(steps.items()))


@lru_cache(maxsize=1 << 16)
def _epsilon(name: str, delta: float, secure: bool, steps: Steps) -> float:
    if not steps:
        return 0.0
    if any(noise == 0 for noise, _, _ in steps):
        return math.inf
    from opacus.accountants import RDPAccountant

    # it warns about an order at the edge of its grid, which is expected here
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        rdp = RDPAccountant()
        rdp.history = list(steps)
        bound = max(0.0, float(rdp.get_epsilon(delta, orders_of(secure).tolist())))
    if name == "rdp" or bound > LARGEST_PRV:
        return bound
    return min(bound, prv_epsilon(steps, delta, "local.dp"))


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
