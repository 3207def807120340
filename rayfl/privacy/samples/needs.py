"""What a client update will ask of a client's samples: known before it starts, and without its noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rayfl.privacy.samples.spending import Mechanism, Spending


@dataclass(frozen=True)
class SampleRequest:
    """A request of an algorithm's client update that touches the client's samples.

    Attributes:
        kind: `training`: local training, every step of which draws samples. `query`: losses, or gradients that are not
            trained with, which take all samples of their view.
        part: The part of the samples it is about, as in `Mechanism.part`.
        results: Of a query: how many of loss and gradient it returns; each is noised and charged.
        every_step: Whether there is one for every local step, not one for the client update.
    """

    kind: Literal["training", "query"] = "training"
    part: str = ""
    results: int = 1
    every_step: bool = False


class Need(NamedTuple):
    """A mechanism whose noise is yet to be found; see `Mechanism`."""

    rate: float
    part: str = ""


Needs = Mapping[Need, int]
"""How often each is used."""


def with_noise(needs: Needs, noise_multiplier: float, earlier: Spending | None = None) -> dict[Mechanism, int]:
    """A spending with this noise, on top of an earlier one."""
    spending: Counter[Mechanism] = Counter(earlier or {})
    for need, times in needs.items():
        spending[Mechanism(noise_multiplier, need.rate, need.part)] += times
    return dict(spending)


def times(needs: Needs, number: int) -> Counter[Need]:
    """What so many client updates need."""
    return Counter({need: each * number for need, each in needs.items()})


def without_noise(spending: Spending) -> Counter[Need]:
    """What was used, whatever its noise."""
    used: Counter[Need] = Counter()
    for mechanism, number in spending.items():
        used[Need(mechanism.rate, mechanism.part)] += number
    return used
