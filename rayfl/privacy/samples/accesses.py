"""Accesses to a client's samples, from which the cost of a client update is planned before the noise is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from rayfl.local.spending import Mechanism, Spending


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
