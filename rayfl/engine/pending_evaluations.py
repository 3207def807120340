"""Evaluations that are pending: they go to free hosts, and are reported in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

import numpy as np

from rayfl.engine.assignment import home
from rayfl.engine.backend import Backend, Call, Ref
from rayfl.engine.events import Event
from rayfl.engine.plan.phase_plan import scores_personal_models
from rayfl.engine.plan.rounds import RoundIndex, is_evaluated
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.slices import slices_of_round
from rayfl.engine.state.committed_rounds import CommittedRounds
from rayfl.engine.watchdog import Watchdog


class PendingEvaluations:
    """Submits and reports the evaluations of a run.

    Args:
        run: The run's plan.
        client_rounds: The round that left each client its state.
        backend: Hosts and server.
        watchdog: Waits for them.
    """

    def __init__(self, run: RunPlan, client_rounds: CommittedRounds, backend: Backend, watchdog: Watchdog) -> None:
        self._scenario, self._plans = run.scenario, run.phases
        self._client_rounds, self._backend, self._watchdog = client_rounds, backend, watchdog
        self._under_way: deque[tuple[RoundIndex, Ref, Call]] = deque()

    def wanted(self, index: RoundIndex) -> bool:
        """Whether a round is evaluated: one in `evaluation.every`, and the last of each phase."""
        return is_evaluated(index, self._scenario)

    def at_home(self, index: RoundIndex) -> bool:
        """Whether a round is scored on the hosts that keep the clients' states, which are part of the models."""
        return scores_personal_models(self._scenario, self._plans[index.phase])

    def ahead(self, index: RoundIndex) -> int:
        """How many may be pending after a round; none if the next round would replace the states to be scored."""
        return 0 if self.at_home(index) else 2 * self._backend.rounds_ahead

    def submit(self, index: RoundIndex, model: Ref, hosts: Sequence[int] | None = None) -> None:
        """Spreads the evaluation of a round's model over hosts.

        Args:
            index: The round.
            model: Its model.
            hosts: The hosts; None for all. If clients' states are part of the models, every client's samples go to the
                host that keeps its state.
        """
        at_home, evaluation = self.at_home(index), self._scenario.evaluation
        slices = slices_of_round(self._plans[index.phase].population.slices, evaluation, self._scenario.seed, index)
        clients = np.unique(slices.client[slices.client >= 0]).tolist() if at_home else []
        committed = self._client_rounds.among(clients, index.phase)
        hosts = range(len(self._backend.hosts)) if hosts is None else hosts
        if self._plans[index.phase].population.fragments is None:
            turn = np.arange(len(slices)) % len(hosts)
        else:  # every round the same parts of prepared data to the same node
            hosts, turn = sorted(hosts, key=lambda host: str(self._backend.nodes[host])), slices.in_blocks(len(hosts))
        scores = []
        for position, host in enumerate(hosts):
            own = turn == position
            if at_home:
                own = np.where(slices.client < 0, own, home(slices.client, len(hosts)) == host)
            if len(part := slices[own]):
                scores.append(self._backend.hosts[host].call("evaluate", index, model, part, committed))
        # combined on a host too, since the states of metrics may be large and metrics may need PyTorch
        summary = self._backend.hosts[hosts[0]].call("summarize", index, *scores)
        named = ", ".join(map(str, hosts))
        self._under_way.append((index, model, Call(summary, f"workers {named}: evaluation")))
        self._watchdog.evaluation_begins(index.config(self._scenario).name)

    def outstanding(self, committed: RoundIndex) -> list[tuple[RoundIndex, Ref]]:
        """Returns committed rounds whose evaluation was not reported yet, with references to their models."""
        return [(index, model) for index, model, _ in self._under_way if index.round <= committed.round]

    def collect(self, left: int) -> Generator[Event, None, None]:
        """Reports evaluations, oldest first, until at most `left` are pending."""
        while len(self._under_way) > left:
            yield from self._collect_oldest()

    def collect_through(self, round: int) -> Generator[Event, None, None]:
        """Reports the evaluations of all rounds up to this one."""
        while self._under_way and self._under_way[0][0].round <= round:
            yield from self._collect_oldest()

    def drop(self) -> None:
        """Drops all pending evaluations."""
        self._under_way.clear()

    def _collect_oldest(self) -> Generator[Event, None, None]:
        index, _, summary = self._under_way.popleft()
        phase = index.config(self._scenario).name
        (evaluated,) = yield from self._watchdog.wait([summary], phase, index.round)
        self._watchdog.evaluation_ended(phase)
        yield evaluated
