"""Waits for calls: says what is outstanding when nothing comes back, and at last that it will not come any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend, Ref
from rayfl.engine.calls import Call
from rayfl.errors import LostError, ResourceError
from rayfl.planning.events import Event, Waiting

PATIENCE = 10.0
"""A silence so many times longer than the longest one of the phase that an answer ended is taken for the last one."""

WARNINGS = 5.0
"""The watchdog speaks so often first, at least."""

WARNINGS_AT_FIRST = 30.0
"""The same while nothing says how long answers take."""


class Watchdog:
    """Keeps watch over the calls of a run.

    How long answers take is measured, except the first of each host, for which it loads PyTorch and its data. An
    evaluation may take far longer than the updates before it, so nothing is known either until a phase's first is over.

    Args:
        scenario: What runs.
        backend: Hosts and server.
        clock: Returns seconds that only grow.
    """

    def __init__(self, scenario: Scenario, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend, self._clock = backend, clock
        self._every_s = scenario.resources.watchdog_s
        self._gives_up = scenario.resources.restarts > 0 and scenario.repeatable
        self._answered: set[int] = set()
        self._longest_s: dict[str, float] = {}
        self._evaluated: dict[str, bool] = {}

    def evaluation_begins(self, phase: str) -> None:
        """Takes in that an evaluation of a phase is under way."""
        self._evaluated.setdefault(phase, False)

    def evaluation_ended(self, phase: str) -> None:
        """Takes in that one has come back."""
        self._evaluated[phase] = True

    def wait(self, calls: Sequence[Call], phase: str, round: int) -> Generator[Event, None, list[Any]]:
        """Waits for some calls; yields a `Waiting` event whenever nothing came back for `resources.watchdog_s`.

        Args:
            calls: They return one value each.
            phase: Name of the phase.
            round: The round, counted through the whole scenario.

        Returns:
            Their values, in order.

        Raises:
            RayflError: What the first call that failed raised, whatever else is under way.
            LostError: Nothing came back for so long that nothing will.
        """
        values: dict[Ref, Any] = {}
        pending = {call.ref: call for call in calls}
        since = self._clock()
        while pending:
            done, firsts = self._backend.wait(list(pending), self._every_s), self._firsts(pending.values())
            for ref in done:
                try:
                    values[ref] = self._backend.get(ref)
                except ResourceError as error:
                    error.args = (f"while waiting for {pending[ref].what}, phase '{phase}', round {round}: {error}",)
                    raise
                if (host := pending.pop(ref).host) is not None:
                    self._answered.add(host)
            now = self._clock()
            silence = now - since
            if done:
                if not firsts:
                    self._longest_s[phase] = max(silence, self._longest_s.get(phase, 0.0))
                since = now
                continue
            outstanding = tuple(call.what for call in pending.values())
            yield Waiting(phase, round, silence, outstanding)
            limit, why = self._limit(phase, firsts)
            if self._gives_up and silence >= limit:
                raise LostError(
                    f"no answer for {silence:.0f} s, where the limit is {limit:.0f} s ({why}), phase "
                    f"'{phase}', round {round}: {', '.join(outstanding)}"
                )
        return [values[call.ref] for call in calls]

    def _firsts(self, calls: Iterable[Call]) -> bool:
        """Whether a host is awaited that has not answered yet."""
        return any(call.host is not None and call.host not in self._answered for call in calls)

    def _limit(self, phase: str, firsts: bool) -> tuple[float, str]:
        """After how many seconds without an answer there will be none, and what that rests on."""
        longest = self._longest_s.get(phase)
        if longest is None:
            return WARNINGS_AT_FIRST * self._every_s, "nothing was measured before"
        said = f"the longest wait so far was {longest:.1f} s"
        if firsts or not self._evaluated.get(phase, True):
            said += f", but {'a host' if firsts else 'an evaluation'} is awaited for the first time"
            return max(WARNINGS_AT_FIRST * self._every_s, PATIENCE * longest), said
        return max(WARNINGS * self._every_s, PATIENCE * longest), said
