"""Evaluations under way: submitted to hosts that are free, reported in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend
from rayfl.engine.calls import Call, wait_for
from rayfl.engine.evaluation import Slice, summarize
from rayfl.engine.events import Event
from rayfl.engine.round_index import RoundIndex
from rayfl.engine.schedules.schedule import SubmittedRound


class PendingEvaluations:
    """The evaluations of a run.

    Args:
        scenario: What runs.
        backend: Hosts and server.
    """

    def __init__(self, scenario: Scenario, backend: Backend) -> None:
        self._scenario, self._backend = scenario, backend
        self._under_way: deque[tuple[RoundIndex, list[Call]]] = deque()

    def wanted(self, index: RoundIndex) -> bool:
        """Whether a round is evaluated: every so many, and the last of each phase."""
        last = index.round_in_phase == index.config(self._scenario).rounds
        return last or index.round % self._scenario.evaluation.every == 0

    def submit(self, done: SubmittedRound, slices: Sequence[Slice]) -> None:
        """Spreads an evaluation on slices of the test samples over the hosts that are free."""
        calls, hosts = [], done.evaluators
        for position, host in enumerate(hosts):
            part = list(slices[position :: len(hosts)])
            if part:
                ref = self._backend.hosts[host].call("evaluate", done.index, done.model, part)
                calls.append(Call(ref, f"host {host}: evaluation"))
        self._under_way.append((done.index, calls))

    def collect(self, left: int) -> Generator[Event, None, None]:
        """Reports evaluations, oldest first, until at most `left` are under way."""
        while len(self._under_way) > left:
            index, calls = self._under_way.popleft()
            phase = index.config(self._scenario).name
            watchdog_s = self._scenario.resources.watchdog_s
            scores = yield from wait_for(self._backend, calls, watchdog_s, phase, index.round)
            yield summarize(index, phase, [score for part in scores for score in part])
