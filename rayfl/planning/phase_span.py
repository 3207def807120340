"""The rounds of a phase, counted over the whole scenario."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class PhaseSpan(NamedTuple):
    """A phase and its first and last round, counted from 1 over the whole scenario."""

    name: str
    schedule: str
    first_round: int
    last_round: int


def phase_spans(phases: Iterable[tuple[str, str, int]]) -> tuple[PhaseSpan, ...]:
    """The spans of the phases that have rounds.

    Args:
        phases: Name, schedule and number of rounds of every phase, in order.
    """
    spans, end = [], 0
    for name, schedule, rounds in phases:
        if rounds:
            spans.append(PhaseSpan(name, schedule, end + 1, end + rounds))
        end += rounds
    return tuple(spans)
