"""Finds the noise for a target: no client's epsilon exceeds it, earlier spending included, and the largest is close.

What a client update will cost is planned as accesses to its client's samples, before the noise is chosen. The search
ends when the largest epsilon is within 1.5 % below the target (`CLOSE`), with hardly more noise than necessary.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rayfl.local.spending import Mechanism, Spending
from rayfl.privacy.samples.accounting import MOST_ASKED, Accountant


class Access(NamedTuple):
    """One access to samples, before its noise is chosen; with a noise multiplier it is a `Mechanism`.

    Attributes:
        rate: The probability with which each sample takes part.
        part: Which of the client's samples it touches; see `Mechanism.part`.
    """

    rate: float
    part: str = ""


Accesses = Mapping[Access, int]
"""How often each happens."""


def with_noise(accesses: Accesses, noise_multiplier: float, earlier: Spending | None = None) -> dict[Mechanism, int]:
    """Returns the spending of these accesses with a noise multiplier, added to earlier spending."""
    spending: Counter[Mechanism] = Counter(earlier or {})
    for access, number in accesses.items():
        spending[Mechanism(noise_multiplier, access.rate, access.part)] += number
    return dict(spending)


def times(accesses: Accesses, number: int) -> Counter[Access]:
    """Returns the accesses of this many client updates."""
    return Counter({access: each * number for access, each in accesses.items()})


def without_noise(spending: Spending) -> Counter[Access]:
    """Returns the accesses behind a spending, whatever their noise."""
    used: Counter[Access] = Counter()
    for mechanism, number in spending.items():
        used[Access(mechanism.rate, mechanism.part)] += number
    return used


RATIO = 1.001
"""Noise multipliers are powers of this ratio, so that similar clients get the same one."""

LEVELS = (-2997, 11519)
"""The smallest and largest powers: noise multipliers from 0.05 to 100,000."""

CLOSE = 0.985
"""The search ends when epsilon is at least this share of the target."""

MANY = MOST_ASKED
"""Above this number of distinct clients, the noise of each is found by RDP, whatever the accountant. RDP is an upper
bound, so the noise is larger than necessary; `prv` would have to evaluate as many histories."""


class ImpossibleTargetError(ValueError):
    """No amount of noise meets the target."""


@dataclass(frozen=True)
class Planned:
    """Clients that have spent the same before a phase and will access their samples alike in it.

    Attributes:
        earlier: What each has spent before the phase.
        accesses: How each will access its samples in the phase.
    """

    earlier: Spending
    accesses: Accesses

    def spending(self, noise_multiplier: float) -> dict[Mechanism, int]:
        """The spending of each client after the phase."""
        return with_noise(self.accesses, noise_multiplier, self.earlier)


def noise_of_all(planned: Sequence[Planned], target: float, accountant: Accountant) -> float:
    """Finds a noise multiplier with which the largest epsilon is at most the target, and close to it.

    Args:
        planned: The distinct kinds of clients that take part.
        target: The largest epsilon allowed.
        accountant: Computes epsilon.

    Raises:
        ImpossibleTargetError: No noise is enough.
    """

    def largest(level: int) -> float:
        return accountant.maximum([each.spending(noise_at(level)) for each in planned], enough=target)

    def bound(level: int) -> float:
        return float(accountant.bounds([each.spending(noise_at(level)) for each in planned]).max())

    return noise_at(_least(bound, largest, target, accountant.name == "prv"))


def noise_of_each(planned: Sequence[Planned], target: float, accountant: Accountant) -> list[float]:
    """Finds such a noise multiplier for each kind of client separately; by RDP if there are more than `MANY` kinds.

    Raises:
        ImpossibleTargetError: No noise is enough.
    """
    multipliers = []
    for each in planned:

        def own(level: int, each: Planned = each) -> float:
            return accountant.epsilon(each.spending(noise_at(level)))

        def bound(level: int, each: Planned = each) -> float:
            return float(accountant.bounds([each.spending(noise_at(level))])[0])

        tight = accountant.name == "prv" and len(planned) <= MANY
        multipliers.append(noise_at(_least(bound, own, target, tight)))
    return multipliers


def noise_at(level: int) -> float:
    """The noise multiplier of a level: a power of `RATIO`, to six digits."""
    return float(f"{RATIO**level:.6g}")


def _least(bound: Callable[[int], float], exact: Callable[[int], float], target: float, tight: bool) -> int:
    """The first level at which epsilon is at most the target: by a bound, then closer."""
    level = _first(lambda at: bound(at) <= target)
    if level is None:  # the RDP bound has a floor above 0, which `exact` may go below
        if not tight or exact(LEVELS[1]) > target:
            raise ImpossibleTargetError
        level = LEVELS[1]
    return _closer(exact, level, target) if tight else level


def _first(holds: Callable[[int], bool]) -> int | None:
    """Returns the first level that holds, given that all levels above it hold too."""
    low, high = LEVELS
    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _closer(epsilon: Callable[[int], float], level: int, target: float) -> int:
    """Goes down from a level that keeps the target, until epsilon is close to it.

    Epsilon is about a power of the noise, so its logarithm is about linear in the level: a secant is close after a few
    steps, and every third one halves what is left.
    """
    low, high, at_high = LEVELS[0] - 1, level, epsilon(level)
    if at_high > target:
        raise ImpossibleTargetError
    slope = math.log(RATIO)
    for step in itertools.count():
        if at_high >= CLOSE * target or high - low == 1:
            return high
        aim = math.log((1 + CLOSE) / 2 * target / max(at_high, 1e-12)) / slope
        tried = (low + high) // 2 if step % 3 == 2 else int(np.clip(high - round(aim), low + 1, high - 1))
        at_tried = epsilon(tried)
        if 0 < at_high < at_tried < math.inf:
            slope = math.log(at_tried / at_high) / (high - tried)
        if at_tried <= target:
            high, at_high = tried, at_tried
        else:
            low = tried
    raise AssertionError("the levels are finite")
