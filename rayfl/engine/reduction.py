"""Answers of many clients to one exchange, reduced: on a host as they come, then over hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rayfl.algorithms.exchange import Answer, Answers
from rayfl.engine.exact_sum import ExactSum, PartialSum, combine
from rayfl.errors import RayflError


@dataclass(frozen=True)
class HostAnswers:
    """What one host sends to the server for its part of the cohort: a sum per name, however many clients it had."""

    weight: PartialSum
    totals: dict[str, PartialSum]
    sums: dict[str, PartialSum]


class Reduction:
    """Adds up the answers of one host's clients."""

    def __init__(self, fraction_bits: int) -> None:
        self._bits = fraction_bits
        self._weight = ExactSum("weight", fraction_bits)
        self._totals: dict[str, ExactSum] | None = None
        self._sums: dict[str, ExactSum] = {}

    def add(self, answer: Answer) -> None:
        """Raises SumRangeError where a value does not fit the exact sum."""
        # a user's own code may return anything
        if not (getattr(answer, "values", None) or getattr(answer, "sums", None)):
            raise RayflError("it must return an Answer with at least one named vector")
        if both := answer.sums.keys() & answer.asides.keys():
            raise RayflError(f"it answered with {sorted(both)} both in sums and in asides")
        plain = answer.sums | answer.asides
        if self._totals is None:
            self._totals = {name: ExactSum(name, self._bits) for name in answer.values}
            self._sums = {name: ExactSum(name, self._bits) for name in plain}
        if self._totals.keys() != answer.values.keys() or self._sums.keys() != plain.keys():
            mine, others = [*answer.values, *plain], [*self._totals, *self._sums]
            raise RayflError(f"it answered with {sorted(mine)}, others with {sorted(others)}")
        first = next(iter([*answer.values.values(), *plain.values()]))
        self._weight.add(first.new_ones(1), answer.weight)
        for name, values in answer.values.items():
            self._totals[name].add(values.flatten(), answer.weight)
        for name, values in plain.items():
            self._sums[name].add(values.flatten(), 1.0)

    def result(self) -> HostAnswers:
        totals = {name: total.partial() for name, total in (self._totals or {}).items()}
        return HostAnswers(self._weight.partial(), totals, {name: s.partial() for name, s in self._sums.items()})


def reduce_hosts(parts: Sequence[HostAnswers], fraction_bits: int) -> Answers:
    """The cohort's answers from those of the hosts, in any order."""
    names = {(frozenset(part.totals), frozenset(part.sums)) for part in parts}
    if len(names) != 1:
        listed = sorted(sorted([*totals, *sums]) for totals, sums in names)
        raise RayflError(f"clients answered one exchange with different names: {listed}")
    weight = float(combine("weight", [part.weight for part in parts], fraction_bits)[0])
    if weight <= 0:
        raise RayflError(f"the weights of a cohort's answers add up to {weight}, not to something above 0")
    totals = {name: combine(name, [part.totals[name] for part in parts], fraction_bits) for name in parts[0].totals}
    sums = {name: combine(name, [part.sums[name] for part in parts], fraction_bits) for name in parts[0].sums}
    return Answers(weight, totals, sums)
