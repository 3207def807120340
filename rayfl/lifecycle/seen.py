"""Tracks which events of a run have been seen, to recognise repeated ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayfl.planning.events import BudgetSpent, Evaluated, Event, RoundDone, RoundSettled

_KINDS: dict[type[Event], str] = {
    RoundDone: "done",
    Evaluated: "evaluated",
    RoundSettled: "settled",
    BudgetSpent: "ended",
}


class Seen:
    """The latest round seen, by kind of event.

    Args:
        state: The result of `state`, if the run continues.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._rounds: dict[str, int] = dict.fromkeys(_KINDS.values(), 0) | dict(state or {})

    @property
    def done(self) -> int:
        """The last committed round."""
        return self._rounds["done"]

    def has(self, event: Event) -> bool:
        """Whether an event was seen before, as happens in rounds repeated after a death or a stop."""
        kind = _KINDS.get(type(event))
        return kind is not None and event.round <= self._rounds[kind]

    def add(self, event: Event) -> None:
        """Records an event as seen."""
        if kind := _KINDS.get(type(event)):
            self._rounds[kind] = event.round

    def state(self) -> dict[str, int]:
        """As plain data."""
        return dict(self._rounds)
