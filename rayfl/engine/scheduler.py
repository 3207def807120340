"""The scheduler: walks through the phases, samples cohorts, submits and commits rounds. It only holds references."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

from rayfl.engine.assignment import most_homes
from rayfl.engine.backend import Backend, Call, Ref, Worker
from rayfl.engine.events import BudgetSpent, Event, HostsChanged, RoundSettled, SnapshotTaken, Waiting
from rayfl.engine.pending_evaluations import PendingEvaluations
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.privacy_budget import Admission
from rayfl.engine.progress import CommittedState
from rayfl.engine.schedules.schedule import (
    NobodyLeftError,
    Schedule,
    ScheduleContext,
    StoppedError,
    SubmittedRound,
    schedule_of,
    submitted,
)
from rayfl.engine.state.snapshots import RunSnapshot, Snapshotting
from rayfl.engine.state.state_store import StateStore
from rayfl.engine.watchdog import Watchdog
from rayfl.errors import LostError, ResourceError
from rayfl.privacy.release_ledger import Charges


@dataclass(frozen=True)
class _UnderWay:
    """A submitted round, and what its schedule had in flight at that time."""

    round: SubmittedRound
    in_flight: dict[str, Any]


class Scheduler:
    """Runs a scenario on a backend.

    Args:
        run: The run's plan.
        backend: Hosts and server.

    Raises:
        ResourceError: Clients keep state, and there are too many hosts to divide them among.
    """

    def __init__(self, run: RunPlan, backend: Backend) -> None:
        self._scenario, self._plans, self._backend = run.scenario, run.own_phases(), backend
        most = most_homes(run.scenario.numerics.clients_at_once)
        self._keep_states = any(plan.keeps_client_state for plan in self._plans)
        if len(backend.hosts) > most and self._keep_states:
            raise ResourceError(
                f"{len(backend.hosts)} workers are too many: clients that keep state can be divided among at most "
                f"{most}; set resources.hosts={most}"
            )
        self._watchdog = Watchdog(run.scenario, backend)
        self._progress = CommittedState(run)
        self._evaluations = PendingEvaluations(run, self._progress.client_rounds, backend, self._watchdog)
        self._start = 0.0
        self._settles, self._stopped, self._interrupted = run.settles, False, False
        self._last_from: int | None = None
        self._snapshots: Snapshotting | None = None
        self._newcomers = deque[tuple[Sequence[Worker], Sequence[object]]]()

    def run(self) -> Iterator[Event]:
        """Runs the scenario from its last committed round to its end.

        Yields:
            The events, in order.

        Raises:
            ClientError: The first client update that failed.
            LostError: A host or the server died, or does not answer.
        """
        try:
            yield from self._run()
        except LostError:
            yield from self._save()
            raise

    def _run(self) -> Iterator[Event]:
        self._start = time.monotonic()
        self._stopped = self._is_last(self._progress.index)
        yield from self._evaluations.collect(0 if self._settles else self._evaluations.ahead(self._progress.index))
        for number in range(self._progress.index.phase, len(self._plans)):
            if not self._stopped:
                yield from self._phase(number)
        if not self._interrupted or self._is_last(self._progress.index):
            yield from self._evaluations.collect(left=0)
        if self._snapshots is not None:
            yield from self._snapshots.finish()

    def stop(self, round: int) -> None:
        """Makes a round the last one, or the first round after it that is not reported yet, and discards later ones.

        The last round settles, and is evaluated like the last round of any scenario. Other threads may call this,
        unless all rounds settle (`RunPlan.settles`): then call it while handling the `RoundSettled` of the round.
        """
        self._last_from = round

    def _is_last(self, index: RoundIndex) -> bool:
        return self._last_from is not None and index.round >= self._last_from

    def checkpoint_to(self, store: StateStore) -> None:
        """Takes a snapshot whenever the scenario's [checkpoint] asks for one, with its states in a store."""
        keepers = self._backend.hosts if self._keep_states else ()
        parts = self._scenario, self._backend, keepers, self._watchdog, store, self._progress.index.round
        self._snapshots = Snapshotting(*parts)

    def charge_to(self, charges: Charges) -> None:
        """Charges every round in a ledger before it is submitted to any host or the server."""
        self._progress.budget.charge_to(charges)

    def interrupt(self) -> None:
        """Ends the run, unfinished, after the current round, with a snapshot of it; other threads may call this."""
        self._interrupted = True

    def join(self, hosts: Sequence[Worker], nodes: Sequence[object]) -> None:
        """Lets more hosts take part from the end of a round on; other threads may call this.

        If clients keep state, hosts join at the end of a round before the next one begins, and only if snapshots are
        taken (`checkpoint_to`): every host then reads the states of its clients from one.

        Args:
            hosts: The hosts, which have begun the run.
            nodes: Their nodes.
        """
        self._newcomers.append((hosts, nodes))

    def _let_join(self, index: RoundIndex, idle: bool) -> Generator[Event, None, None]:
        """Lets newcomers take part after a committed round; `idle` says that no later one is under way."""
        hosts, snapshots = self._backend.hosts, self._snapshots
        before = len(hosts)
        if not self._newcomers or self._stopped or (self._keep_states and (not idle or snapshots is None)):
            return
        taken: RunSnapshot | None = None
        if self._keep_states and snapshots is not None:
            yield from snapshots.finish()
            self._snapshot(snapshots)
            for event in snapshots.finish():
                yield event
                taken = RunSnapshot.from_json(event.snapshot) if isinstance(event, SnapshotTaken) else taken
            if taken is None:  # it could not be written
                return
        while self._newcomers:
            self._backend.add(*self._newcomers.popleft())
        if taken is not None and snapshots is not None:
            refs = self._give_states(taken, snapshots.store)
            yield from self._wait([Call(ref, "workers: client states") for ref in refs], index)
        yield HostsChanged(index.config(self._scenario).name, index.round, before, len(hosts))

    def _give_states(self, snapshot: RunSnapshot, store: StateStore) -> list[Ref]:
        """Has every host read the states of its clients."""
        hosts, part = self._backend.hosts, (snapshot.index, snapshot.clients)
        return [host.call("restore", *part, number, len(hosts), store) for number, host in enumerate(hosts)]

    def _snapshot(self, snapshots: Snapshotting) -> Ref:
        """Starts a snapshot of the state after the last round that was reported as done; see `Snapshotting.begin`."""
        index = self._progress.index
        outstanding = self._evaluations.outstanding(index)
        complete = self._progress.snapshot([evaluated for evaluated, _ in outstanding])
        return snapshots.begin(index, complete, [model for _, model in outstanding])

    def _save(self) -> Generator[Event, None, None]:
        """Takes a snapshot of the last committed round after a host was lost, so that no committed round is repeated.

        None if the server does not answer, or if the host was the only one to have the states of its clients.
        """
        snapshots = self._snapshots
        if snapshots is None or self._keep_states or not self._progress.index.round:
            return
        begun = self._snapshot(snapshots)
        if self._backend.wait([begun], self._scenario.resources.watchdog_s):
            yield from (event for event in snapshots.finish() if isinstance(event, SnapshotTaken | Waiting))

    def _checkpoint(self) -> Generator[Event, None, None]:
        """Takes a snapshot if one is due, and reports one that has been written meanwhile."""
        snapshots = self._snapshots
        if snapshots is None:
            return
        yield from snapshots.collect()
        if self._interrupted or snapshots.due(self._progress.index):
            yield from snapshots.finish()
            self._snapshot(snapshots)
            if not self._scenario.repeatable:  # later rounds, once reported, could not be repeated with the same result
                yield from snapshots.finish()
        if self._interrupted:
            self._stopped = True
            yield from snapshots.finish()

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        """Lets new hosts and a new server continue after the round of a snapshot.

        Args:
            snapshot: The snapshot.
            store: Where its states are.

        Raises:
            RayflError: A state is missing or damaged.
        """
        self._progress.restore(snapshot, store)
        refs = [self._backend.server.call("restore", snapshot.server, store), *self._give_states(snapshot, store)]
        for ref in refs:
            self._backend.get(ref)
        for index, stored in zip(snapshot.evaluations, snapshot.server.models, strict=True):
            self._evaluations.submit(index, self._backend.server.call("stored_model", store, stored))

    def _phase(self, number: int) -> Generator[Event, None, None]:
        plan = self._plans[number]
        done_before = self._progress.done_of(number)
        # client states and the scalars that a sampler reads must be committed before the next round begins
        one_by_one = plan.keeps_client_state or (plan.sampler is not None and plan.sampler.reads_scalars)
        under_way = deque[_UnderWay]()
        schedule = self._schedule(plan, under_way)
        if 0 < done_before < plan.phase.rounds:
            schedule.restore(deepcopy(self._progress.in_flight))
        for round_in_phase in range(done_before + 1, plan.phase.rounds + 1):
            if self._stopped:
                return
            index = RoundIndex(number, plan.first_round + round_in_phase - 1, round_in_phase)
            try:
                round = yield from submitted(schedule, index)
            except NobodyLeftError as nobody:
                yield from self._finish(under_way, left=0)
                if not self._stopped:
                    yield from self._cut_short(index, nobody.admission)
                return
            except StoppedError:
                return
            if not self._evaluations.at_home(index) and self._evaluations.wanted(index):
                self._evaluations.submit(index, self._model_of(round), round.evaluators)
            under_way.append(_UnderWay(round, deepcopy(schedule.snapshot())))
            alone = round_in_phase == plan.phase.rounds or one_by_one
            yield from self._finish(under_way, left=0 if alone else self._backend.rounds_ahead)

    def _schedule(self, plan: PhasePlan, under_way: deque[_UnderWay]) -> Schedule:
        def committed(clients: Sequence[int]) -> Mapping[int, int]:
            return self._progress.client_rounds.among(clients, plan.number)

        def settled() -> Generator[Event, None, None]:
            if self._settles or self._last_from is not None:
                yield from self._finish(under_way, left=0)  # a stop takes precedence over errors of later rounds
            while under_way and not self._stopped and self._is_over(under_way[0].round):
                yield from self._finish(under_way, left=len(under_way) - 1)
            if self._stopped:
                raise StoppedError

        kind = schedule_of(plan.phase)
        draw = partial(self._progress.draw, together=kind.begins_together)
        sizes, clock = plan.population.sizes, self._progress.clock_of(plan)
        parts = plan, self._scenario, self._backend, self._watchdog, sizes, draw, committed, settled, clock
        return kind(ScheduleContext(*parts))

    def _is_over(self, round: SubmittedRound) -> bool:
        refs = [call.ref for call in (*round.reports, *round.server_calls)]
        return len(self._backend.wait(refs, 0)) == len(refs)

    def _finish(self, under_way: deque[_UnderWay], left: int) -> Generator[Event, None, None]:
        """Waits for rounds, commits and reports them, oldest first, until at most `left` are under way."""
        while len(under_way) > left and not self._stopped:
            oldest = under_way.popleft()
            done = oldest.round
            values = yield from self._wait([*done.reports, *done.server_calls], done.index, done.cohort)
            reports, server = values[: len(done.reports)], values[len(done.reports) :]
            self._progress.check(done, reports)
            yield from self._commit(done)
            seconds = time.monotonic() - self._start
            event = self._progress.commit(done, reports, server, oldest.in_flight, seconds)
            if self._evaluations.at_home(done.index) and self._evaluations.wanted(done.index):
                self._evaluations.submit(done.index, self._model_of(done))
            yield event
            if self._settles or self._is_last(done.index):
                yield from self._settle(done)
            else:
                yield from self._evaluations.collect(self._evaluations.ahead(done.index))
            yield from self._checkpoint()
            yield from self._let_join(done.index, idle=not under_way)

    def _settle(self, done: SubmittedRound) -> Generator[Event, None, None]:
        """Reports the rest of a committed round before a later one is processed."""
        yield from self._evaluations.collect_through(done.index.round)
        yield RoundSettled(done.index.config(self._scenario).name, done.index.round)
        if self._is_last(done.index):
            self._stopped = True
            self._evaluations.drop()
            if not self._evaluations.wanted(done.index):
                hosts = None if self._evaluations.at_home(done.index) else done.evaluators
                self._evaluations.submit(done.index, self._model_of(done), hosts)

    def _model_of(self, done: SubmittedRound) -> Ref:
        """Returns the model to evaluate; requested before the server commits a later round."""
        return self._backend.server.call("model_after", done.index) if done.model is None else done.model

    def _cut_short(self, index: RoundIndex, admission: Admission) -> Generator[Event, None, None]:
        """Ends a phase before a round without admissible clients, or the run before a round that exceeds a budget."""
        plan, reached = self._plans[index.phase], self._progress.index
        if reached.phase == index.phase and reached.round and not self._evaluations.wanted(reached):
            model = self._backend.server.call("model_after", reached)
            self._evaluations.submit(reached, model)
            yield from self._evaluations.collect(left=0)
        self._stopped = admission.ends_run
        left_out = () if self._stopped else self._progress.budget.leave_out(admission.left_out)
        yield BudgetSpent(plan.phase.name, index.round, admission.ends, self._stopped, left_out, admission.limit)

    def _commit(self, done: SubmittedRound) -> Generator[Event, None, None]:
        """Commits a round on server and hosts."""
        plan = self._plans[done.index.phase]
        # a finished phase needs no open rounds, except the last one, which may get more rounds later
        over = done.index.round_in_phase == plan.phase.rounds and plan is not self._plans[-1]
        open_rounds = [] if over else list(done.open_rounds)
        calls = [Call(self._backend.server.call("commit", done.index, open_rounds), "server: commit")]
        if plan.keeps_client_state:
            by_host: dict[int, list[int]] = {}
            for number, updated in done.assignments:
                by_host.setdefault(number, []).extend(updated)
            for number, clients in by_host.items():
                host = self._backend.hosts[number]
                calls.append(Call(host.call("commit", done.index, clients), f"worker {number}: commit", number))
            yield from self._wait(calls, done.index)
        # otherwise there is nothing to wait for: the server already has the round's model and only drops the old one

    def _wait(
        self, calls: Sequence[Call], index: RoundIndex, cohort: Sequence[int] = ()
    ) -> Generator[Event, None, list[Any]]:
        return (yield from self._watchdog.wait(calls, index.config(self._scenario).name, index.round, cohort))
