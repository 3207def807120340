"""The scheduler: walks the phases, samples cohorts, assigns visits, commits rounds. It only holds references."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rayfl.algorithms.building import build_algorithms
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import at_home, legs, longest_first
from rayfl.engine.backend import Backend, Ref
from rayfl.engine.cohort import cohort_of
from rayfl.engine.evaluation import Slice, summarize
from rayfl.engine.events import Evaluated, Event, RoundDone, Traffic, Waiting
from rayfl.engine.turn import Turn, VisitReport
from rayfl.errors import ResourceError
from rayfl.local.steps import visit_steps

ROUNDS_AHEAD = 2
"""Rounds submitted before the first of them is over, so that no host waits for the scheduler."""


@dataclass(frozen=True)
class _Call:
    """A reference that is awaited, and what a person would call it."""

    ref: Ref
    what: str


@dataclass(frozen=True)
class _Round:
    """A round under way: who is visited where, the reports, and, of a parallel round, the server's aggregation."""

    turn: Turn
    visits: list[tuple[int, list[int]]]
    reports: list[_Call]
    aggregations: list[_Call]


class Scheduler:
    """Runs a scenario on a backend.

    sizes: [clients] training examples of each client. slices: of the test examples.
    """

    def __init__(self, scenario: Scenario, backend: Backend, sizes: np.ndarray, slices: Sequence[Slice]) -> None:
        self._scenario, self._backend = scenario, backend
        self._sizes, self._slices = sizes, slices
        self._algorithms = build_algorithms(scenario)
        self._traffic = Traffic()
        self._evaluations: deque[tuple[Turn, list[_Call]]] = deque()
        self._turn = Turn(0, 0, 0)
        self._last_client: int | None = None
        self._start = 0.0

    def run(self) -> Iterator[Event]:
        """The whole scenario, event by event.

        Raises:
            ClientError: the first visit that failed.
        """
        self._start = time.monotonic()
        first = 1
        for index, phase in enumerate(self._scenario.phases):
            turns = [Turn(index, first + number, number + 1) for number in range(phase.rounds)]
            yield from self._relay(turns) if phase.schedule == "relay" else self._parallel(turns)
            first += phase.rounds
        yield from self._collect_evaluations(left=0)

    def _parallel(self, turns: Sequence[Turn]) -> Generator[Event, None, None]:
        """Every round goes from the server to the hosts and back, once for each of its algorithm's exchanges."""
        server, ahead = self._backend.server, deque[_Round]()
        for turn in turns:
            plan, cohort = self._plan(turn)
            exchange, reports, aggregations = server.call("begin", turn, cohort), [], []
            for _ in range(self._algorithms[turn.phase].exchanges):
                parts = []
                for host, clients in plan:
                    part, report = self._backend.hosts[host].call("answer", turn, clients, exchange, returns=2)
                    parts.append(part)
                    reports.append(_Call(report, f"host {host}: {_named(clients)}"))
                aggregated, exchange = server.call("receive", *parts, returns=2)
                aggregations.append(_Call(aggregated, "server: aggregation"))
            if self._is_evaluated(turn):
                self._evaluate(turn, server.call("model"), busy=None)
            ahead.append(_Round(turn, plan, reports, aggregations))
            yield from self._finish(ahead, left=self._may_run_ahead(turn))

    def _relay(self, turns: Sequence[Turn]) -> Generator[Event, None, None]:
        """Every round is one chain of references: no model passes through the scheduler."""
        model, ahead = self._backend.server.call("model"), deque[_Round]()
        for turn in turns:
            cohort = self._cohort(turn)
            packed = self._scenario.resources.relay == "packed" and not self._algorithms[turn.phase].keeps_state()
            reports = []
            route = legs(cohort, len(self._backend.hosts), packed)
            for host, clients in route:
                model, report = self._backend.hosts[host].call("relay", turn, clients, model, returns=2)
                reports.append(_Call(report, f"host {host}: {_named(clients)}"))
            if self._is_evaluated(turn):
                self._evaluate(turn, model, busy=0 if packed else None)
            ahead.append(_Round(turn, route, reports, []))
            yield from self._finish(ahead, left=self._may_run_ahead(turn))
        yield from self._await([_Call(self._backend.server.call("adopt", model), "server: the relay's model")])

    def _may_run_ahead(self, turn: Turn) -> int:
        """How many rounds may be under way when the next is submitted; states must be committed before."""
        last = turn.round_in_phase == turn.config(self._scenario).rounds
        return 0 if last or self._algorithms[turn.phase].keeps_state() else ROUNDS_AHEAD - 1

    def _finish(self, ahead: deque[_Round], left: int) -> Generator[Event, None, None]:
        """Waits for rounds and reports them, oldest first, until at most `left` are under way."""
        while len(ahead) > left:
            done = ahead.popleft()
            self._turn = done.turn
            values = yield from self._await([*done.reports, *done.aggregations])
            yield from self._commit(done)
            yield self._round_done(done, values[: len(done.reports)])
            yield from self._collect_evaluations(left=ROUNDS_AHEAD)

    def _cohort(self, turn: Turn) -> list[int]:
        phase = turn.config(self._scenario)
        cohort = cohort_of(phase, self._scenario.seed, turn, self._sizes, self._last_client)
        self._last_client = cohort[-1]
        return cohort

    def _plan(self, turn: Turn) -> tuple[list[tuple[int, list[int]]], list[int]]:
        """A parallel round's cohort, and who of it trains on which host."""
        cohort, hosts = self._cohort(turn), len(self._backend.hosts)
        if self._algorithms[turn.phase].keeps_state():
            visits = at_home(cohort, hosts)
        else:
            local = turn.config(self._scenario).local
            visits = longest_first(cohort, [visit_steps(local, int(self._sizes[client])) for client in cohort], hosts)
        return [(host, clients) for host, clients in enumerate(visits) if clients], cohort

    def _commit(self, done: _Round) -> Generator[Event, None, None]:
        if self._algorithms[done.turn.phase].keeps_state():
            calls = []
            for index, host in enumerate(self._backend.hosts):
                clients = [client for at, visited in done.visits if at == index for client in visited]
                calls.append(_Call(host.call("commit", done.turn, clients), f"host {index}: commit"))
            yield from self._await(calls)

    def _round_done(self, done: _Round, reports: Sequence[VisitReport]) -> RoundDone:
        turn = done.turn
        loss_sums = [loss for report in reports for loss in report.loss_sums]
        steps = sum(report.steps for report in reports)
        self._traffic = sum((report.traffic for report in reports), self._traffic)
        return RoundDone(
            phase=turn.config(self._scenario).name,
            round=turn.round,
            round_in_phase=turn.round_in_phase,
            train_loss=math.fsum(loss_sums) / steps if steps else math.nan,
            visits=sum(len(clients) for _, clients in done.visits),
            steps=steps,
            traffic=self._traffic,
            seconds=time.monotonic() - self._start,
        )

    def _is_evaluated(self, turn: Turn) -> bool:
        return (
            turn.round % self._scenario.evaluation.every == 0
            or turn.round_in_phase == turn.config(self._scenario).rounds
        )

    def _evaluate(self, turn: Turn, model: Ref, busy: int | None) -> None:
        """Submits an evaluation, spread over the hosts; where a relay keeps one of them busy, over the others."""
        hosts = [host for host in range(len(self._backend.hosts)) if host != busy] or [0]
        calls = []
        for position, host in enumerate(hosts):
            part = list(self._slices[position :: len(hosts)])
            if part:
                calls.append(
                    _Call(self._backend.hosts[host].call("evaluate", turn, model, part), f"host {host}: evaluation")
                )
        self._evaluations.append((turn, calls))

    def _collect_evaluations(self, left: int) -> Generator[Event, None, None]:
        """Reports evaluations, oldest first, until at most `left` are under way."""
        while len(self._evaluations) > left:
            turn, calls = self._evaluations.popleft()
            scores = yield from self._await(calls)
            evaluated: Evaluated = summarize(
                turn, turn.config(self._scenario).name, [s for part in scores for s in part]
            )
            yield evaluated

    def _await(self, calls: Sequence[_Call]) -> Generator[Event, None, list[Any]]:
        """The values of some calls, in order. The first failure is raised at once, whatever else is under way."""
        values: dict[Ref, Any] = {}
        pending = {call.ref: call.what for call in calls}
        phase, since = self._turn.config(self._scenario).name, time.monotonic()
        while pending:
            done = self._backend.wait(list(pending), self._scenario.resources.patience_s)
            for ref in done:
                try:
                    values[ref] = self._backend.get(ref)
                except ResourceError as error:
                    where = f"{pending[ref]}, phase '{phase}', round {self._turn.round}"
                    raise ResourceError(f"while waiting for {where}: {error}") from None
                del pending[ref]
                since = time.monotonic()
            if not done:
                yield Waiting(phase, self._turn.round, time.monotonic() - since, tuple(pending.values()))
        return [values[call.ref] for call in calls]


def _named(clients: Sequence[int]) -> str:
    shown = ", ".join(str(client) for client in clients[:8])
    return f"clients {shown}" + (f" and {len(clients) - 8} more" if len(clients) > 8 else "")
