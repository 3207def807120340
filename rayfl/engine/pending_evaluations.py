"""Evaluations under way: submitted to hosts that are free, reported in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence

from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import home
from rayfl.engine.backend import Backend, Ref
from rayfl.engine.calls import Call
from rayfl.engine.watchdog import Watchdog
from rayfl.planning.events import Event
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.slices import Slice


class PendingEvaluations:
    """The evaluations of a run.

    Args:
        scenario: What runs.
        backend: Hosts and server.
        watchdog: Waits for them.
    """

    def __init__(self, scenario: Scenario, backend: Backend, watchdog: Watchdog) -> None:
        self._scenario, self._backend, self._watchdog = scenario, backend, watchdog
        self._under_way: deque[tuple[RoundIndex, Ref, Call]] = deque()

    def wanted(self, index: RoundIndex) -> bool:
        """Whether a round is evaluated: every so many, and the last of each phase."""
        last = index.round_in_phase == index.config(self._scenario).rounds
        return last or index.round % self._scenario.evaluation.every == 0

    def submit(
        self,
        index: RoundIndex,
        model: Ref,
        hosts: Sequence[int],
        slices: Sequence[Slice],
        at_home: bool = False,
        committed: Mapping[int, int] | None = None,
    ) -> None:
        """Spreads the evaluation of a round's model on slices over some hosts.

        Args:
            index: The round.
            model: Its model.
            hosts: The hosts; all of them where `at_home`.
            slices: What to score.
            at_home: Whether every slice goes to the host that keeps its client's state.
            committed: By client, the round that left that state.
        """
        scores = []
        for position, host in enumerate(hosts):
            part = list(slices[position :: len(hosts)])
            if at_home:
                part = [cut for cut in part if cut.client < 0]
                part += [cut for cut in slices if cut.client >= 0 and home(cut.client, len(hosts)) == host]
            if part:
                scores.append(self._backend.hosts[host].call("evaluate", index, model, part, committed))
        # put together on a host too: the states of metrics may be large, and metrics may need PyTorch
        summary = self._backend.hosts[hosts[0]].call("summarize", index, *scores)
        named = ", ".join(map(str, hosts))
        self._under_way.append((index, model, Call(summary, f"hosts {named}: evaluation")))
        self._watchdog.evaluation_begins(index.config(self._scenario).name)

    def outstanding(self, committed: RoundIndex) -> list[tuple[RoundIndex, Ref]]:
        """Rounds up to the last committed one whose evaluation was not reported yet, and references to their models."""
        return [(index, model) for index, model, _ in self._under_way if index.round <= committed.round]

    def collect(self, left: int) -> Generator[Event, None, None]:
        """Reports evaluations, oldest first, until at most `left` are under way."""
        while len(self._under_way) > left:
            yield from self._collect_oldest()

    def collect_through(self, round: int) -> Generator[Event, None, None]:
        """Reports the evaluations of all rounds up to this one."""
        while self._under_way and self._under_way[0][0].round <= round:
            yield from self._collect_oldest()

    def drop(self) -> None:
        """Forgets what is under way."""
        self._under_way.clear()

    def _collect_oldest(self) -> Generator[Event, None, None]:
        index, _, summary = self._under_way.popleft()
        phase = index.config(self._scenario).name
        (evaluated,) = yield from self._watchdog.wait([summary], phase, index.round)
        self._watchdog.evaluation_ended(phase)
        yield evaluated
