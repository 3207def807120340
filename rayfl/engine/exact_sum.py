"""Weighted sums whose bits do not depend on the order of addition.

A contribution is rounded to a multiple of 2**-s by adding and subtracting 1.5 * 2**(52 - s) in float64; multiples
of 2**-s below 2**(53 - s) are exact float64 numbers, so adding them is exact, hence associative and commutative:
clients may be spread over any number of hosts, and hosts may answer in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rayfl.errors import RayflError

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 15
"""Values rounded at a time: 256 KiB of float64, so that the passes over a chunk stay in a core's cache."""


class SumRangeError(RayflError):
    """A contribution or a sum that the grid cannot hold exactly, that is not finite, or of another length."""


@dataclass(frozen=True)
class PartialSum:
    """One host's share of a sum.

    total: float64 [n], multiples of 2**-s. bound: sum over the contributions of their largest absolute value, so
    that no partial sum, in whatever order, can exceed the sum of the bounds.
    """

    total: np.ndarray
    bound: float


class ExactSum:
    """A running sum of weighted float32 vectors, on the device of the first one."""

    def __init__(self, name: str, fraction_bits: int) -> None:
        self._name, self._bits = name, fraction_bits
        self._total: torch.Tensor | None = None
        self._bound = 0.0

    def add(self, values: torch.Tensor, weight: float) -> None:
        """Adds weight * values, [n] float32.

        Raises:
            SumRangeError: a value is not finite, or too large for the grid.
        """
        magic, largest_allowed = 1.5 * 2.0 ** (52 - self._bits), 2.0 ** (51 - self._bits)
        values = values.detach()
        if self._total is None:
            self._total = values.new_zeros(values.shape).double()
        if values.shape != self._total.shape:
            raise SumRangeError(f"its '{self._name}' has {values.numel()} values, that of others {self._total.numel()}")
        step = CHUNK if values.device.type == "cpu" else max(len(values), 1)
        largest = 0.0
        for start in range(0, len(values), step):
            chunk = (values[start : start + step].double() * weight).add_(magic).sub_(magic)
            low, high = chunk.aminmax()
            worst = max(-float(low), float(high))
            if not worst < largest_allowed:  # also when it is not a number
                raise SumRangeError(self._out_of_range(worst, largest_allowed))
            largest = max(largest, worst)
            self._total[start : start + step].add_(chunk)
        self._bound += largest

    def partial(self) -> PartialSum:
        if self._total is None:
            raise ValueError(f"nothing was added to '{self._name}'")
        return PartialSum(self._total.cpu().numpy(), self._bound)

    def _out_of_range(self, worst: float, allowed: float) -> str:
        if not np.isfinite(worst):
            return f"its '{self._name}' holds {worst}"
        return (
            f"its weighted '{self._name}' reaches {worst:.3g}, and numerics.fraction_bits = {self._bits} allows "
            f"{allowed:.3g}: use fewer fraction_bits"
        )


def combine(name: str, parts: Sequence[PartialSum], fraction_bits: int) -> np.ndarray:
    """The sum of the hosts' shares, [n] float64.

    Raises:
        SumRangeError: the whole sum might not be exact.
    """
    bound, limit = sum(part.bound for part in parts), 2.0 ** (53 - fraction_bits)
    if bound >= limit:
        raise SumRangeError(
            f"the cohort's sum of '{name}' may reach {bound:.3g}, and numerics.fraction_bits = {fraction_bits} allows "
            f"{limit:.3g}: use fewer fraction_bits"
        )
    total = np.array(parts[0].total)
    for part in parts[1:]:
        total += part.total
    return total
