"""Weighted sums whose bits do not depend on the order of addition.

Every contribution is rounded to a multiple of 2**-s, where s is `numerics.fraction_bits`. The rounded values are added
exactly, so addition is associative and commutative: clients may be spread over any number of hosts, and hosts may
answer in any order. The result is the exact sum, correctly rounded to float64.

Multiples of 2**-s up to 2**(53 - s) are float64 numbers, and so are their sums within that range. A single float64
array, bin 0, is therefore enough for typical contributions (below 2**(51 - s), about half a million for s = 32). Larger
values, and sums that outgrow bin 0, go to further bins: bin k holds multiples of 2**(36 k - s) up to
2**(36 k + 53 - s). Further bins are allocated on demand, separately for each chunk of the vector. The method follows
Demmel and Nguyen, "Parallel Reproducible Summation", IEEE Transactions on Computers, 2015, whose bins drop the smallest
contributions; these bins are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rayfl.errors import DivergenceError, RayflError

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 15
"""Values rounded at a time: 256 KiB of float64, so that a chunk stays in a core's cache from pass to pass."""

BIN_BITS = 36
"""Bits between the units of adjacent bins: a value spans at most three bins, and a bin has room for 2**17 carries."""

LARGEST = 2.0**960
"""Weighted values must be smaller in magnitude (about 1e289), so that no sum of them can overflow."""


class SumRangeError(RayflError):
    """A contribution cannot be added: it is too large for float64, or its length differs from that of the others."""


class NotFiniteError(SumRangeError, DivergenceError):
    """A contribution contains NaN or infinity."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"its answer '{self.name}' contains NaN or infinity: training diverged; use a smaller lr, or set clip_norm"
        )


@dataclass(frozen=True)
class PartialSum:
    """One host's share of a sum.

    Attributes:
        total: Bin 0, float64 [n].
        bound: Upper bound on the absolute values in `total`.
        where: Indices of the elements that use further bins, int64 [m], ascending; usually empty.
        further: Bins 1, 2, ... of these elements, float64 [bins, m].
    """

    total: np.ndarray
    bound: float
    where: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    further: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))


class SumMemory:
    """Vectors of earlier sums, in which later ones begin: new memory of 800 MB takes a second to be mapped.

    A share (`PartialSum`) shows the vector of its sum, which is therefore free only once whoever receives the share has
    copied it. Vectors are zeroed before they are used again.
    """

    def __init__(self) -> None:
        self._shown: list[Tensor] = []
        self._free: list[Tensor] = []

    def zeros(self, like: Tensor) -> Tensor:
        """A float64 vector of zeros, as long as `like` and on its device."""
        for place, vector in enumerate(self._free):
            if vector.shape == like.shape and vector.device == like.device:
                return self._free.pop(place).zero_()
        return like.new_zeros(like.shape).double()

    def show(self, vector: Tensor) -> None:
        """Notes that a share shows a vector from `zeros`."""
        self._shown.append(vector)

    def copied(self) -> None:
        """Notes that all shares made so far were copied; vectors that none has shown since are forgotten."""
        self._free, self._shown = self._shown or self._free, []


class ExactSum:
    """A running sum of weighted vectors, kept on the device of the first vector."""

    def __init__(self, name: str, fraction_bits: int, memory: SumMemory | None = None) -> None:
        """Starts an empty sum.

        Args:
            name: What is summed, for error messages.
            fraction_bits: Contributions are rounded to multiples of 2**-fraction_bits.
            memory: Where its vector is; by default in new memory.
        """
        self._name, self._bits, self._memory = name, fraction_bits, memory or SumMemory()
        self._total: Tensor | None = None
        self._chunks: list[_Bins] = []

    def add(self, values: Tensor, weight: float) -> None:
        """Adds weight * values.

        Args:
            values: [n] float32.
            weight: Any finite number.

        Raises:
            NotFiniteError: A value is NaN or infinite.
            SumRangeError: The vector differs in length from the others, or weight * values reaches 1e289.
        """
        import torch  # imported here because the server combines sums without PyTorch

        magic, usual = 1.5 * 2.0 ** (52 - self._bits), 2.0 ** (51 - self._bits)
        values = values.detach()
        step = CHUNK if values.device.type == "cpu" else max(len(values), 1)
        if self._total is None:
            self._total = self._memory.zeros(values)
            self._chunks = [_Bins(chunk, self._bits) for chunk in torch.split(self._total, step) if len(chunk)]
        if values.shape != self._total.shape:
            raise SumRangeError(
                f"its '{self._name}' has {values.numel()} values, but those of other clients have {self._total.numel()}"
            )
        if not self._chunks:
            return
        low, high = torch.stack(values.aminmax()).tolist()  # together, since each read waits for the GPU
        # the terms' largest magnitude, rounded as they are
        largest = max(-low, high) * abs(weight) + magic - magic
        for start, bins in zip(range(0, len(values), step), self._chunks, strict=True):
            chunk = values[start : start + step]
            if largest < usual:
                # adding and subtracting the constant rounds values smaller than `usual` to multiples of 2**-s
                bins.add(chunk.to(torch.float64, copy=True).mul_(weight).add_(magic).sub_(magic), largest)
            else:  # also taken when `largest` is NaN
                self._add_large(chunk, weight, bins)

    def partial(self) -> PartialSum:
        """Returns this host's share, to be passed to `combine` with those of the other hosts.

        Raises:
            ValueError: Nothing was added.
        """
        if self._total is None:
            raise ValueError(f"nothing was added to '{self._name}'")
        self._memory.show(self._total)
        total, bound = self._total.cpu().numpy(), max((bins.bounds[0] for bins in self._chunks), default=0.0)
        depth = max((len(bins.sums) for bins in self._chunks), default=1) - 1
        if not depth:
            return PartialSum(total, bound)
        starts = np.cumsum([0, *(len(bins.sums[0]) for bins in self._chunks)])
        beyond = [(start, *bins.further(depth)) for start, bins in zip(starts, self._chunks, strict=False)]
        where = np.concatenate([start + places for start, places, _ in beyond])
        return PartialSum(total, bound, where, np.concatenate([sums for *_, sums in beyond], axis=1))

    def _add_large(self, chunk: Tensor, weight: float, bins: _Bins) -> None:
        """Splits weighted values over the bins, coarsest first, each part rounded to a multiple of its bin's unit."""
        if not bool(chunk.isfinite().all()):
            raise NotFiniteError(self._name)
        rest = chunk.double() * weight
        largest = float(rest.abs().max())
        if not largest < LARGEST:
            raise SumRangeError(
                f"its '{self._name}' times its weight {weight:.3g} is outside the range of sums, +-{LARGEST:.3g}"
            )
        exponent = math.frexp(largest)[1]
        bound = 2.0**exponent
        for number in range(max(0, math.ceil((exponent + self._bits - 51) / BIN_BITS)), -1, -1):
            unit = 2.0 ** (BIN_BITS * number - self._bits)
            terms = rest.div(unit).round_().mul_(unit)
            rest.sub_(terms)
            bins.add(terms, bound, number)
            bound = unit / 2


def in_units(number: float, fraction_bits: int) -> int:
    """Rounds a number as contributions are; returns it in units of 2**-fraction_bits, an integer with exact sums.

    Args:
        number: Below `LARGEST` in magnitude.
        fraction_bits: As for `ExactSum`.
    """
    return round(math.ldexp(number, fraction_bits))


class _Bins:
    """Running sums of one chunk of a vector.

    Attributes:
        sums: One float64 [chunk] tensor per bin.
        bounds: Per bin, an upper bound on the absolute values of its sum: the sum of the terms' bounds, until that
            would be too much, and from then on the true maximum plus the bounds of later terms.
    """

    def __init__(self, first: Tensor, fraction_bits: int) -> None:
        self.sums, self.bounds, self._bits = [first], [0.0], fraction_bits

    def add(self, terms: Tensor, bound: float, number: int = 0) -> None:
        """Adds multiples of a bin's unit, each at most 2**51 units in magnitude."""
        while len(self.sums) <= number:
            self.sums.append(self.sums[0].new_zeros(self.sums[0].shape))
            self.bounds.append(0.0)
        room = 2.0 ** (BIN_BITS * number + 53 - self._bits)
        if self.bounds[number] + bound > room:
            low, high = self.sums[number].aminmax()
            self.bounds[number] = float(high.maximum(-low))
            if self.bounds[number] + bound > room:
                self._carry(number)
        self.sums[number].add_(terms)
        self.bounds[number] += bound

    def further(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the indices of the elements that use bins beyond the first, and those bins, [depth, elements]."""
        sums = np.zeros((depth, len(self.sums[0])))
        for row, values in zip(sums, self.sums[1:], strict=False):
            row[:] = values.cpu().numpy()
        places = np.flatnonzero(sums.any(axis=0))
        return places, sums[:, places]

    def _carry(self, number: int) -> None:
        """Moves whole units of the next bin into it, leaving at most half such a unit in this one."""
        unit = 2.0 ** (BIN_BITS * (number + 1) - self._bits)
        carried = self.sums[number].div(unit).round_().mul_(unit)
        self.sums[number].sub_(carried)
        bound, self.bounds[number] = self.bounds[number] + unit / 2, unit / 2
        self.add(carried, bound, number + 1)


def merge(name: str, parts: Sequence[PartialSum], fraction_bits: int) -> PartialSum:
    """Adds up some hosts' shares of a sum without rounding, so that `combine` gives the same bits for their merged one.

    Args:
        name: What is summed, for error messages.
        parts: The shares, in any order.
        fraction_bits: The value with which the shares were made.

    Returns:
        Their sum, in memory of its own.

    Raises:
        SumRangeError: The shares have different lengths.
    """
    total = _added(name, parts)
    limit, bound = 2.0 ** (53 - fraction_bits), sum(part.bound for part in parts)
    if bound < limit and not any(len(part.where) for part in parts):
        return PartialSum(total, bound)
    places = _inexact(parts, limit)
    bins = [np.zeros(len(places))]
    for part in parts:
        further, carried = _further(part, places), np.zeros(len(places))
        for number, values in enumerate([part.total[places], *further]):
            unit = 2.0 ** (BIN_BITS * (number + 1) - fraction_bits)
            kept, carried = carried, np.round(values / unit) * unit
            bins[number] += (values - carried) + kept  # at most 2**35 + 2**17 units of this bin, from any part
            if number + 1 == len(bins):
                bins.append(np.zeros(len(places)))
        bins[len(further) + 1] += carried
    total[places] = bins[0]
    while len(bins) > 1 and not bins[-1].any():
        bins.pop()
    further = np.reshape(bins[1:], (len(bins) - 1, len(places)))
    deep = np.flatnonzero(further.any(axis=0))
    return PartialSum(total, float(np.abs(total).max(initial=0.0)), places[deep], further[:, deep])


def combine(name: str, parts: Sequence[PartialSum], fraction_bits: int) -> np.ndarray:
    """Adds up the hosts' shares of a sum.

    Args:
        name: What is summed, for error messages.
        parts: The shares, in any order.
        fraction_bits: The value with which the shares were made.

    Returns:
        The exact sum of all rounded contributions, correctly rounded to float64: [n].

    Raises:
        SumRangeError: The shares have different lengths.
    """
    total = _added(name, parts)
    limit = 2.0 ** (53 - fraction_bits)
    if sum(part.bound for part in parts) >= limit or any(len(part.where) for part in parts):
        places = _inexact(parts, limit)
        total[places] = _correctly_rounded(_terms(parts, places), limit)
    return total


def check_lengths(name: str, parts: Sequence[PartialSum]) -> None:
    """Checks that shares of a sum are equally long.

    Raises:
        SumRangeError: They are not.
    """
    lengths = sorted({len(part.total) for part in parts})
    if len(lengths) > 1:
        raise SumRangeError(f"clients answered with different numbers of values in '{name}': {lengths}")


def _added(name: str, parts: Sequence[PartialSum]) -> np.ndarray:
    """[n] the sum of bin 0 of all parts, in new memory; inexact where `_inexact` says so."""
    check_lengths(name, parts)
    total = np.array(parts[0].total)
    for part in parts[1:]:
        total += part.total
    return total


def _inexact(parts: Sequence[PartialSum], limit: float) -> np.ndarray:
    """Indices of the elements for which adding up bin 0 of all parts may be inexact."""
    magnitude = np.abs(parts[0].total)
    for part in parts[1:]:
        magnitude += np.abs(part.total)
    for part in parts:
        magnitude[part.where] = limit
    return np.flatnonzero(magnitude >= limit)


def _terms(parts: Sequence[PartialSum], places: np.ndarray) -> list[np.ndarray]:
    """All terms of the sums of the given elements, each [places]."""
    terms = [part.total[places] for part in parts]
    for part in parts:
        terms.extend(_further(part, places))
    return terms


def _further(part: PartialSum, places: np.ndarray) -> np.ndarray:
    """[bins, places] further bins of a share, with zeros for elements that use none."""
    further = np.zeros((len(part.further), len(places)))
    further[:, np.searchsorted(places, part.where)] = part.further
    return further


def _correctly_rounded(terms: Sequence[np.ndarray], limit: float) -> np.ndarray:
    """Sums float64 arrays whose values are multiples of limit / 2**53.

    Knuth's TwoSum gives the rounding error of every addition. Where these errors themselves add up exactly, the sum is
    `high + low`, and this one addition rounds it correctly. The remaining elements go through fsum, at about a
    microsecond each.
    """
    high, low, errors = terms[0], np.zeros_like(terms[0]), np.zeros_like(terms[0])
    for term in terms[1:]:
        total = high + term
        part = total - high
        error = (high - (total - part)) + (term - part)
        low += error
        errors += np.abs(error)
        high = total
    result: np.ndarray = high + low
    hard = np.flatnonzero(errors >= limit)
    result[hard] = [math.fsum(column) for column in np.stack([term[hard] for term in terms], axis=1).tolist()]
    return result
