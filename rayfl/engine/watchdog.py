"""Waits for calls, reports outstanding ones when none returns for a while, and finally gives up."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend, Call, Ref
from rayfl.engine.events import Event, Waiting
from rayfl.errors import ClientError, LostError, ResourceError

SILENCE_FACTOR = 10.0
"""The watchdog gives up after this many times the phase's longest silence before an answer."""

WARNINGS = 5.0
"""The minimum number of warnings before it gives up."""

WARNINGS_AT_FIRST = 30.0
"""The minimum number of warnings as long as it has not measured how long answers take."""


class Watchdog:
    """Watches over the calls of a run; the scheduler's is for hosts and server, the driver's for the scheduler.

    Silence is the time without an answer and without progress on any host (`Backend.progress`), so an update may take
    hours. The watchdog measures how long it lasts, except before each host's first answer, for which the host loads
    PyTorch and its data. The limit is higher until all hosts have answered and, since an evaluation may take far longer
    than the updates before it, until a phase's first evaluation is over.

    Args:
        scenario: The scenario.
        backend: Hosts and server.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, scenario: Scenario, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend, self._clock = backend, clock
        self._every_s = scenario.resources.watchdog_s
        self._gives_up = scenario.resources.restarts > 0 and scenario.repeatable
        self._answered: set[int] = set()
        self._progress = 0
        self._longest_s: dict[str, float] = {}
        self._evaluated: dict[str, bool] = {}

    def evaluation_begins(self, phase: str) -> None:
        """Notes that an evaluation of a phase is under way."""
        self._evaluated.setdefault(phase, False)

    def evaluation_ended(self, phase: str) -> None:
        """Notes that an evaluation of a phase is over."""
        self._evaluated[phase] = True

    def wait(
        self, calls: Sequence[Call], phase: str, round: int, cohort: Sequence[int] = ()
    ) -> Generator[Event, None, list[Any]]:
        """Waits for some calls; yields a `Waiting` event whenever none has returned for `resources.watchdog_s`.

        Args:
            calls: Calls that return one value each.
            phase: Name of the phase.
            round: The round within the scenario.
            cohort: The round's clients, in order.

        Returns:
            Their values, in order.

        Raises:
            RayflError: The error of the first call that fails, even if others are under way; see `wait_for_some`.
            LostError: No call returned for longer than the limit.
        """
        values: dict[Ref, Any] = {}
        while pending := [call for call in calls if call.ref not in values]:
            values |= yield from self.wait_for_some(pending, phase, round, cohort)
        return [values[call.ref] for call in calls]

    def wait_for_some(
        self, calls: Sequence[Call], phase: str, round: int, cohort: Sequence[int] = (), needed: Sequence[Call] = ()
    ) -> Generator[Event, None, dict[Ref, Any]]:
        """Waits until one or more of some calls have returned; see `wait`.

        Args:
            calls: As for `wait`.
            phase: As for `wait`.
            round: As for `wait`.
            cohort: As for `wait`.
            needed: Calls whose results these wait for; they are named if they are outstanding too.

        Returns:
            The values of those that have, by reference.

        Raises:
            RayflError: The error of one that failed. Of several client updates that have failed, the error is that of
                the client who is first in the cohort, whichever worker was faster.
            LostError: As `wait`.
        """
        pending = {call.ref: call for call in calls}
        began = since = self._clock()
        # calls that are pending on a host that has never answered
        firsts = any(call.host is not None and call.host not in self._answered for call in calls)
        while not (done := self._backend.wait(list(pending), self._every_s)):
            if self._has_progressed():
                since = self._clock()
                continue
            silence = self._clock() - since
            late = [call for call in needed if not self._backend.wait([call.ref], 0)]
            outstanding = tuple(call.what for call in (*late, *calls))
            yield Waiting(phase, round, silence, outstanding)
            limit, why = self._limit(phase, firsts)
            if self._gives_up and silence >= limit:
                raise LostError(
                    f"no answer for {silence:.0f} s, and the limit is {limit:.0f} s ({why}), phase "
                    f"'{phase}', round {round}: {', '.join(outstanding)}"
                )
        values: dict[Ref, Any] = {}
        failed: list[ClientError] = []
        for ref in done:
            try:
                values[ref] = self._backend.get(ref)
            except ClientError as error:
                failed.append(error)
            except ResourceError as error:
                error.args = (f"while waiting for {pending[ref].what}, phase '{phase}', round {round}: {error}",)
                raise
            if (host := pending[ref].host) is not None:
                self._answered.add(host)
        if failed:
            order = {client: place for place, client in enumerate(cohort)}
            raise min(failed, key=lambda error: order.get(error.client, len(order)))
        if not firsts:
            self._longest_s[phase] = max(self._clock() - max(began, since), self._longest_s.get(phase, 0.0))
        return values

    def wait_while_answered(
        self, ref: Ref, ask: Callable[[], Call], phase: str, round: int
    ) -> Generator[Event, None, None]:
        """Waits for a result that may take any time, as long as the process behind it answers in the meantime.

        Args:
            ref: The result.
            ask: Makes a call that the process answers at once, whatever else it does. Made after every
                `resources.watchdog_s` without the result; yields a `Waiting` event if it takes as long.
            phase: Name of the phase.
            round: The round within the scenario.

        Raises:
            LostError: The process did not answer for longer than the limit.
        """
        limit = WARNINGS * self._every_s
        while not self._backend.wait([ref], self._every_s):
            asked, since = ask(), self._clock()
            while not self._backend.wait([asked.ref], self._every_s):
                silence = self._clock() - since
                yield Waiting(phase, round, silence, (asked.what,))
                if self._gives_up and silence >= limit:
                    raise LostError(
                        f"{asked.what} does not answer for {silence:.0f} s, and the limit is {limit:.0f} s, phase "
                        f"'{phase}', round {round}"
                    )

    def _has_progressed(self) -> bool:
        """Whether hosts have made batches since the last time that nothing returned."""
        before, self._progress = self._progress, self._backend.progress()
        return self._progress > before

    def _limit(self, phase: str, firsts: bool) -> tuple[float, str]:
        """Returns the limit in seconds on waiting for an answer, and its reason."""
        longest = self._longest_s.get(phase)
        if longest is None:
            return WARNINGS_AT_FIRST * self._every_s, "no answer was measured yet"
        reason = f"the longest wait so far was {longest:.1f} s"
        if firsts or not self._evaluated.get(phase, True):
            reason += f", but this is the first {'answer of a worker' if firsts else 'evaluation'}"
            return max(WARNINGS_AT_FIRST * self._every_s, SILENCE_FACTOR * longest), reason
        return max(WARNINGS * self._every_s, SILENCE_FACTOR * longest), reason
