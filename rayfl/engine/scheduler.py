"""The scheduler: walks the phases, samples cohorts, submits rounds and commits them. It only holds references."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import home
from rayfl.engine.backend import Backend, Ref
from rayfl.engine.calls import Call, wait_for
from rayfl.engine.pending_evaluations import PendingEvaluations
from rayfl.engine.privacy_budget import Admission, BudgetSnapshot, PrivacyBudget
from rayfl.engine.schedules import SCHEDULES
from rayfl.engine.schedules.schedule import SubmittedRound
from rayfl.engine.server import BEFORE, ServerSnapshot
from rayfl.local.spending import SpendingByClient
from rayfl.planning.evaluated_clients import slices_of_round
from rayfl.planning.events import BudgetSpent, ClientScalars, Event, RoundDone, RoundSettled, Traffic
from rayfl.planning.phase_plan import plan_phases, scores_personal_models
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.sampling import Sampling, SamplingSnapshot, reported_scalars
from rayfl.planning.update_report import UpdateReport
from rayfl.planning.workload import Population

if TYPE_CHECKING:
    import numpy as np

    from rayfl.engine.client_states import Snapshot


@dataclass(frozen=True)
class RunSnapshot:
    """The whole truth between two rounds, as plain data: with it a run goes on, on any number of hosts.

    Attributes:
        index: The last committed round.
        sampling: What later cohorts depend on.
        traffic: Since the start of the run.
        server: The server's part.
        clients: What clients keep, by client.
        evaluations: Rounds and models whose evaluation has yet to be reported.
        privacy: What was spent of clients' privacy.
    """

    index: RoundIndex
    sampling: SamplingSnapshot
    traffic: Traffic
    server: ServerSnapshot
    clients: Snapshot
    evaluations: Sequence[tuple[RoundIndex, np.ndarray]]
    privacy: BudgetSnapshot = field(default_factory=BudgetSnapshot)


class Scheduler:
    """Runs a scenario on a backend.

    Args:
        scenario: What runs.
        backend: Hosts and server.
        populations: The clients of each phase.
        settles: See `Job.settles`.
    """

    def __init__(
        self, scenario: Scenario, backend: Backend, populations: Sequence[Population], settles: bool = False
    ) -> None:
        self._scenario, self._backend, self._populations = scenario, backend, populations
        self._plans = plan_phases(scenario)
        self._evaluations = PendingEvaluations(scenario, backend)
        self._committed, self._traffic = BEFORE, Traffic()
        self._sampling = Sampling(scenario, self._plans, populations)
        self._budget = PrivacyBudget(scenario.seed, self._plans, populations)
        self._start = 0.0
        self._settles, self._stopped = settles, False

    def run(self) -> Iterator[Event]:
        """Runs the scenario from its last committed round to its end.

        Yields:
            Events, in order.

        Raises:
            ClientError: The first client update that failed.
        """
        self._start = time.monotonic()
        yield from self._evaluations.collect(0 if self._settles else self._evaluations_ahead(self._committed))
        for number in range(self._committed.phase, len(self._plans)):
            if not self._stopped:
                yield from self._phase(number)
        yield from self._evaluations.collect(left=0)

    def stop(self) -> None:
        """Makes the round whose `RoundSettled` was the latest event the last one; later ones are discarded.

        It is evaluated, as the last round of a scenario is.
        """
        self._stopped = True

    def snapshot(self) -> RunSnapshot:
        """Returns the state after the last round that was reported as done."""
        server = self._backend.get(self._backend.server.call("snapshot"))
        states = [self._backend.get(host.call("snapshot", self._committed)) for host in self._backend.hosts]
        clients = {client: state for part in states for client, state in part.items()}
        evaluations = self._evaluations.outstanding(self._committed)
        return RunSnapshot(
            self._committed, self._sampling.snapshot(), self._traffic, server, clients, evaluations,
            self._budget.snapshot(),
        )  # fmt: skip

    def restore(self, snapshot: RunSnapshot) -> None:
        """Makes new hosts and a new server go on after the round of a snapshot."""
        self._committed, self._traffic = snapshot.index, snapshot.traffic
        self._sampling.restore(snapshot.sampling)
        self._budget.restore(snapshot.privacy)
        hosts = self._backend.hosts
        refs = [self._backend.server.call("restore", snapshot.server)]
        for number, host in enumerate(hosts):
            own = {client: state for client, state in snapshot.clients.items() if home(client, len(hosts)) == number}
            refs.append(host.call("restore", snapshot.index, own))
        for ref in refs:
            self._backend.get(ref)
        for index, model in snapshot.evaluations:
            self._evaluate(index, model, range(len(hosts)))

    def _phase(self, number: int) -> Generator[Event, None, None]:
        plan = self._plans[number]
        done_before = self._committed.round_in_phase if self._committed.phase == number else 0
        # clients' states, and scalars that a sampler reads, must be committed before the next round begins
        one_by_one = plan.keeps_client_state or (plan.sampler is not None and plan.sampler.reads_scalars)
        schedule = SCHEDULES[plan.phase.schedule](plan, self._scenario, self._backend, self._populations[number].sizes)
        under_way = deque[SubmittedRound]()
        for round_in_phase in range(done_before + 1, plan.phase.rounds + 1):
            index = RoundIndex(number, plan.first_round + round_in_phase - 1, round_in_phase)
            admission = self._budget.admit(index, self._sampling.draw(index))
            if admission.ends_phase:
                yield from self._finish(under_way, left=0)
                if not self._stopped:
                    yield from self._cut_short(index, admission)
                return
            cohort = admission.cohort
            if self._settles and schedule.waits_for(cohort):
                yield from self._finish(under_way, left=0)  # a stop must come before anything that goes wrong later
            if self._stopped:
                return
            submitted = yield from schedule.submit(index, cohort)
            if not self._at_home(index) and self._evaluations.wanted(index):
                self._evaluate(index, submitted.model, submitted.evaluators)
            under_way.append(submitted)
            alone = round_in_phase == plan.phase.rounds or one_by_one
            yield from self._finish(under_way, left=0 if alone else self._backend.rounds_ahead)

    def _finish(self, under_way: deque[SubmittedRound], left: int) -> Generator[Event, None, None]:
        """Waits for rounds, commits and reports them, oldest first, until at most `left` are under way."""
        while len(under_way) > left and not self._stopped:
            done = under_way.popleft()
            values = yield from self._wait([*done.reports, *done.server_calls], done.index)
            reports, server = values[: len(done.reports)], values[len(done.reports) :]
            spent = yield from self._commit(done, reports)
            if self._at_home(done.index) and self._evaluations.wanted(done.index):
                self._evaluate(done.index, done.model, range(len(self._backend.hosts)))
            yield self._round_done(done, reports, server, spent)
            if self._settles:
                yield from self._settle(done)
            else:
                yield from self._evaluations.collect(self._evaluations_ahead(done.index))

    def _settle(self, done: SubmittedRound) -> Generator[Event, None, None]:
        """Reports all that is left of a committed round, before anything of a later one is looked at."""
        yield from self._evaluations.collect_through(done.index.round)
        yield RoundSettled(done.index.config(self._scenario).name, done.index.round)
        if self._stopped:
            self._evaluations.drop()
            if not self._evaluations.wanted(done.index):
                hosts = range(len(self._backend.hosts)) if self._at_home(done.index) else done.evaluators
                self._evaluate(done.index, done.model, hosts)

    def _at_home(self, index: RoundIndex) -> bool:
        return scores_personal_models(self._scenario, self._plans[index.phase])

    def _evaluations_ahead(self, index: RoundIndex) -> int:
        """How many may be under way after a round; what clients keep must be scored before the next one replaces it."""
        return 0 if self._at_home(index) else 2 * self._backend.rounds_ahead

    def _evaluate(self, index: RoundIndex, model: Ref, hosts: Sequence[int]) -> None:
        evaluation, slices = self._scenario.evaluation, self._populations[index.phase].slices
        slices = slices_of_round(slices, evaluation, self._scenario.seed, index)
        self._evaluations.submit(index, model, hosts, slices, self._at_home(index))

    def _cut_short(self, index: RoundIndex, admission: Admission) -> Generator[Event, None, None]:
        """Ends a phase before a round in which nobody can take part, or the run before one that exceeds a budget."""
        plan, reached = self._plans[index.phase], self._committed
        if reached.phase == index.phase and reached.round and not self._evaluations.wanted(reached):
            model = self._backend.server.call("model_after", reached)
            self._evaluate(reached, model, range(len(self._backend.hosts)))
            yield from self._evaluations.collect(left=0)
        self._stopped = bool(admission.stops)
        left_out = () if self._stopped else self._budget.leave_out(admission.left_out)
        reason = admission.stops or "no client of the next cohort has budget left (local.dp.max_epsilon)"
        yield BudgetSpent(plan.phase.name, index.round, reason, self._stopped, left_out)
        if plan.keeps_client_state and not self._stopped:
            hosts = list(self._backend.hosts) * (plan.phase.rounds - index.round_in_phase + 1)
            # hosts count the rounds that nobody takes part in too
            yield from self._wait([Call(host.call("commit", index, []), "a host: commit") for host in hosts], index)

    def _commit(
        self, done: SubmittedRound, reports: Sequence[UpdateReport]
    ) -> Generator[Event, None, SpendingByClient]:
        plan = self._plans[done.index.phase]
        calls = [Call(self._backend.server.call("commit", done.index), "server: commit")]
        if plan.keeps_client_state:
            for number, host in enumerate(self._backend.hosts):
                clients = [client for at, updated in done.assignments if at == number for client in updated]
                calls.append(Call(host.call("commit", done.index, clients), f"host {number}: commit"))
            yield from self._wait(calls, done.index)
        # elsewhere there is nothing to wait for: the server, which has the round's model, only drops the one before
        self._committed = done.index
        self._sampling.commit(done.index, reports)
        return self._budget.commit(done.index, reports)

    def _round_done(
        self,
        done: SubmittedRound,
        reports: Sequence[UpdateReport],
        server: Sequence[Mapping[str, float] | None],
        spent: SpendingByClient,
    ) -> RoundDone:
        losses = [loss for report in reports for loss in report.losses.values()]
        steps = sum(number for _, number in losses)
        self._traffic = sum((report.traffic for report in reports), self._traffic)
        by_client = reported_scalars(reports)
        means = {
            name: math.fsum(values) / len(values)
            for name in sorted({name for scalars in by_client.values() for name in scalars})
            if (values := [scalars[name] for scalars in by_client.values() if name in scalars])
        }
        reported = {name: value for scalars in server for name, value in (scalars or {}).items()}
        left_out = self._budget.left_out_of(done.index)
        if left_out is not None:
            reported |= {"left_out": float(len(left_out))}
        return RoundDone(
            phase=done.index.config(self._scenario).name,
            round=done.index.round,
            round_in_phase=done.index.round_in_phase,
            train_loss=math.fsum(total for total, _ in losses) / steps if steps else math.nan,
            client_updates=sum(len(clients) for _, clients in done.assignments),
            steps=steps,
            traffic=self._traffic,
            seconds=time.monotonic() - self._start,
            scalars=means | reported,
            client_scalars=tuple(ClientScalars(client, by_client[client]) for client in sorted(by_client)),
            spent=spent,
            left_out=left_out or (),
        )

    def _wait(self, calls: Sequence[Call], index: RoundIndex) -> Generator[Event, None, list[Any]]:
        phase, watchdog_s = index.config(self._scenario).name, self._scenario.resources.watchdog_s
        return (yield from wait_for(self._backend, calls, watchdog_s, phase, index.round))
