"""Cases that together contain every pair of values that may stand together: most defects need no more than two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Case = dict[str, Any]
"""One value per factor."""

Pair = tuple[tuple[str, Any], tuple[str, Any]]
"""Two factors, each with its value."""


def pairs_of(case: Mapping[str, Any]) -> set[Pair]:
    """All pairs of values that a case contains."""
    return set(combinations(case.items(), 2))


def all_pairs(
    factors: Mapping[str, Sequence[Any]], accepts: Callable[[Case], bool]
) -> tuple[list[Case], dict[Pair, list[Case]]]:
    """Covers all pairs greedily, always in the same way.

    Args:
        factors: The values of each factor, the usual one first.
        accepts: Whether a case is possible.

    Returns:
        Accepted cases that contain every possible pair; and the impossible pairs, each with the cases tried: those with
        usual values of the other factors, of which one may be unusual.
    """
    usual = {factor: values[0] for factor, values in factors.items()}
    around: dict[Pair, Case] = {}
    impossible: dict[Pair, list[Case]] = {}
    for one, other in combinations(factors, 2):
        for values in product(factors[one], factors[other]):
            pair, case = ((one, values[0]), (other, values[1])), {**usual, one: values[0], other: values[1]}
            rest = [factor for factor in factors if factor not in (one, other)]
            tried = [case, *({**case, factor: value} for factor in rest for value in factors[factor][1:])]
            found = next((changed for changed in tried if accepts(changed)), None)
            if found:
                around[pair] = found
            else:
                impossible[pair] = tried
    cases, left = [], dict(around)
    while left:
        pair, case = next(iter(left.items()))
        for factor in [factor for factor in factors if factor not in dict(pair)]:
            changes = [{**case, factor: value} for value in factors[factor]]
            changes.sort(key=lambda changed: -len(pairs_of(changed) & left.keys()))
            case = next((changed for changed in changes if accepts(changed)), case)
        cases.append(case)
        for covered in pairs_of(case):
            left.pop(covered, None)
    return cases, impossible
