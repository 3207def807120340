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
    sums: dict[str, PartialSum]


class Reduction:
    """Adds up the answers of one host's clients."""

    def __init__(self, fraction_bits: int) -> None:
        self._bits = fraction_bits
        self._weight = ExactSum("weight", fraction_bits)
        self._sums: dict[str, ExactSum] = {}

    def add(self, answer: Answer) -> None:
        """Raises SumRangeError where a value does not fit the exact sum."""
        if not getattr(answer, "values", None):  # a user's own code may return anything
            raise RayflError("it must return an Answer with at least one named vector")
        if self._sums and self._sums.keys() != answer.values.keys():
            raise RayflError(f"it answered with {sorted(answer.values)}, others with {sorted(self._sums)}")
        first = next(iter(answer.values.values()))
        self._weight.add(first.new_ones(1), answer.weight)
        for name, values in answer.values.items():
            self._sums.setdefault(name, ExactSum(name, self._bits)).add(values.flatten(), answer.weight)

    def result(self) -> HostAnswers:
        return HostAnswers(self._weight.partial(), {name: total.partial() for name, total in self._sums.items()})


def reduce_hosts(parts: Sequence[HostAnswers], fraction_bits: int) -> Answers:
    """The cohort's answers from those of the hosts, in any order."""
    names = {frozenset(part.sums) for part in parts}
    if len(names) != 1:
        raise RayflError(f"clients answered one exchange with different names: {sorted(map(sorted, names))}")
    weight = float(combine("weight", [part.weight for part in parts], fraction_bits)[0])
    if weight <= 0:
        raise RayflError(f"the weights of a cohort's answers add up to {weight}, not to something above 0")
    totals = {name: combine(name, [part.sums[name] for part in parts], fraction_bits) for name in parts[0].sums}
    return Answers(weight, totals)
