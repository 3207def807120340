"""Backend `ray`: runs hosts, server and scheduler as actors on a cluster, and replaces them if some die."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from rayfl.backends.ray import capacity
from rayfl.backends.ray.actors import KeptActors
from rayfl.backends.ray.attempt import Attempt
from rayfl.backends.ray.kept_cluster import KeptCluster
from rayfl.backends.ray.last_snapshots import LastSnapshots
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.placement import resources_of
from rayfl.backends.ray.states import Chance, GrowthPolicy, RecoveryPolicy, RunStates, State
from rayfl.engine.assignment import most_hosts
from rayfl.engine.backend import BackendSession
from rayfl.engine.events import (
    BudgetSpent,
    Evaluated,
    Event,
    HostRestarted,
    HostsChanged,
    Recovering,
    RoundDone,
    RoundSettled,
    SnapshotTaken,
)
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import DamagedStateError, StateStore
from rayfl.errors import LostError, ResourceError, StateLostError
from rayfl.models.tensors import SentModel
from rayfl.privacy.release_ledger import Charges


class RaySession:
    """A run on a cluster.

    If an actor or its node dies or stops answering, the run continues after the last snapshot or from the beginning: on
    the hosts that are left, or on new actors if server or scheduler died, or no host is left. The events of the rounds
    since then are repeated and differ only in their seconds. Hosts leave nodes that are about to go after a snapshot.
    If the scenario can use more hosts than there are, more join once the cluster has room.

    Args:
        run: The run's plan.
        actors: Provides the actors.
        log: Receives Ray's own messages.
        waiting: See `reserved`.

    Attributes:
        dashboard: The address of Ray's dashboard, if the session started one.

    Raises:
        ResourceError: See `Attempt`.
    """

    dashboard: str | None = None

    def __init__(
        self, run: RunPlan, actors: KeptActors, log: RayLog, waiting: Callable[[str], None] | None = None
    ) -> None:
        self._run, self._kept, self._log, self._waiting = run, actors, log, waiting
        self._states = RunStates()
        self._recoveries = RecoveryPolicy(resources_of(run.scenario).restarts, run.scenario.repeatable)
        self._growth = GrowthPolicy(capacity.ASKS_EVERY_S)
        self._snapshots = LastSnapshots(run.scenario, log)
        self._last_reported = 0
        self._latest: Event | None = None
        self._unreported: list[Event] = []
        self._leaving: Sequence[int] = ()
        self._final: tuple[int, SentModel] | None = None
        self._began = self._began_again = time.monotonic()
        self._attempt = self._first_attempt()

    @property
    def hosts(self) -> Sequence[dict[str, str]]:
        """The description of each host (`Host.describe`)."""
        return self._attempt.hosts

    @property
    def is_idle(self) -> bool:
        return self._states.is_idle

    def events(self) -> Iterator[Event]:
        self._began = self._began_again = time.monotonic()
        self._growth.begin()
        self._states.begin()
        while True:
            yield from self._unreported
            self._unreported.clear()
            try:
                event = self._next()
                if event is None and self._leaving and not self._states.interrupted:
                    yield from self._leave()
                    continue
                if event is None:
                    self._final = self._committed()
                    self._states.enter(State.OVER)
                    yield from self._attempt.deaths.unmissed()
                    return
            except LostError as error:
                yield from self._recover(error)
                continue
            yield event
            if isinstance(event, RoundDone):
                yield from self._attempt.deaths.since(event)
                self._look_for_room()

    def stop(self, round: int) -> None:
        if self._run.settles:
            self._states.stop(round, settled=True)
            with suppress(LostError):  # taking the next event raises it too, and the next attempt is told as well
                self._attempt.tell("stop", round)
        elif self._states.last_round is None:
            self._states.stop(round, settled=False)
            self._attempt.post("stop", round)

    def checkpoint_to(self, store: StateStore) -> None:
        self._snapshots.store, self._snapshots.are_taken = store, True
        try:
            self._attempt.tell("checkpoint_to", store)
        except LostError as error:
            self._unreported += self._recover(error)

    def charge_to(self, charges: Charges) -> None:
        self._attempt.tell("charge_to", charges)

    def interrupt(self) -> None:
        self._states.interrupt()
        self._attempt.post("interrupt")

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        self._snapshots.store = store
        self._recoveries.reached(snapshot.index.round)
        try:
            self._attempt.tell("restore", snapshot, store)
            self._snapshots.add(snapshot)
            self._last_reported = snapshot.index.round
        except LostError as error:
            self._snapshots.add(snapshot)
            self._unreported += self._recover(error)
            if not self._snapshots.any():
                raise DamagedStateError(f"a state of the snapshot of round {snapshot.index.round} is damaged") from None

    def committed(self) -> tuple[int, SentModel]:
        """See `BackendSession.committed`; if the server is lost for good, the model of the last snapshot."""
        while self._final is None:
            try:
                return self._committed()
            except LostError as error:
                if self._states.state is State.GIVEN_UP or not self._attempt.has_begun:
                    if (model := self._snapshots.model()) is None:
                        raise
                    return model
                self._catch_up(error)
        return self._final

    def end_of_phase(self, round: int) -> SentModel | None:
        while True:
            try:
                return self._attempt.end_of_phase(round)
            except LostError as error:
                if self._states.state is State.GIVEN_UP:
                    return None
                self._catch_up(error)

    def _first_attempt(self) -> Attempt:
        while True:
            try:
                return Attempt(self._run, self._kept, self._log, self._waiting)
            except LostError as error:
                chance = self._recoveries.next(error)
                self._unreported.append(self._chance(chance, error))
                self._kept.discard()
                time.sleep(chance.pause_s)

    def _committed(self) -> tuple[int, SentModel]:
        return self._attempt.committed(self._last_reported if self._run.settles or self._states.settled else None)

    def _next(self) -> Event | None:
        """The next event of the current attempt; None at the end."""
        event = self._attempt.next()
        match event:
            case None:
                return None
            case RoundDone():
                self._last_reported = event.round
                self._recoveries.reached(event.round)
                event = replace(event, seconds=event.seconds + self._began_again - self._began)
            case SnapshotTaken():
                self._snapshots.add(RunSnapshot.from_json(event.snapshot))
            case RoundSettled() if not self._run.settles:
                self._states.stop(event.round, settled=True)
        self._latest = event
        return event

    def _recover(self, error: ResourceError) -> Iterator[HostRestarted | Recovering | HostsChanged]:
        """Continues without the actors that were lost; retries until that works or the policy gives up."""
        if not (isinstance(error, StateLostError) or self._attempt.deaths.without_node):
            yield from self._attempt.deaths.unmissed()
        self._states.enter(State.RECOVERING)
        before = len(self._attempt.hosts)
        if self._attempt.deaths.without_node:
            error = LostError("a node was lost with its workers, and no other node has room for them")
        while True:
            try:
                chance = self._recoveries.next(error)
            except ResourceError:
                self._states.enter(State.GIVEN_UP)
                raise
            yield self._chance(chance, error)
            time.sleep(chance.pause_s)
            try:
                self._begin_again(self._attempt.deaths.in_updates())
                yield from self._changed(before)
                return
            except ResourceError as again:
                error = again

    def _leave(self) -> Iterator[HostRestarted | HostsChanged]:
        """Continues, after the snapshot with which the run paused, without the hosts on nodes that are about to go."""
        before, leaving, self._leaving = len(self._attempt.hosts), self._leaving, ()
        self._states.enter(State.RECOVERING)
        yield from self._attempt.deaths.unmissed()
        self._attempt.actors.lose(leaving)
        self._begin_again()
        yield from self._changed(before)

    def _changed(self, before: int) -> Iterator[HostsChanged]:
        if (hosts := len(self._attempt.hosts)) != before:
            yield HostsChanged(*self._snapshots.after(), before, hosts)

    def _chance(self, chance: Chance, error: ResourceError) -> Recovering:
        phase, after = self._snapshots.after()
        return Recovering(phase, after, str(error), chance.number, chance.most, chance.pause_s)

    def _look_for_room(self) -> None:
        """Requests places for more hosts if the cluster has room, and lets those that have started join.

        Before that, pauses the run, for some hosts to leave, if their nodes are about to go and the others can go on.
        """
        growth, reservation = self._attempt.growth, self._attempt.actors.reservation
        if self._states.state is not State.RUNNING or not growth.is_due or not self._attempt.head.is_there():
            return
        if self._run.scenario.resources.hosts == "auto" and self._growth.wants(reservation.wanted, self._room):
            reservation.request(self._room())
        growth.look()
        leaving = self._attempt.deaths.to_leave() if self._may_pause else []
        if 0 < len(leaving) < len(self._attempt.hosts):
            self._leaving = leaving
            self._attempt.post("interrupt")

    @property
    def _may_pause(self) -> bool:
        return self._snapshots.are_taken and self._run.scenario.repeatable and not self._leaving

    def _room(self) -> int:
        """How many hosts the run could have."""
        wanted = self._attempt.actors.reservation.wanted
        scenario = self._run.scenario
        useful = most_hosts(self._run.phases, scenario.numerics.clients_at_once)
        return capacity.hosts_with_room(scenario.resources, useful, wanted)

    def _begin_again(self, suspects: Mapping[int, int] | None = None) -> None:
        """Begins another attempt after the latest intact snapshot, or from the beginning, on actors that can go on."""
        if not (self._kept.holds(self._attempt.actors) and self._attempt.goes_on()):
            self._kept.discard()
        self._leaving = ()
        self._attempt = attempt = Attempt(self._run, self._kept, self._log, self._waiting, as_many_as_fit=True)
        if suspects is not None:
            attempt.suspect(suspects)
        self._snapshots.restore(attempt)
        _, self._last_reported = self._snapshots.after()
        if self._snapshots.are_taken:
            attempt.tell("checkpoint_to", self._snapshots.store)
        if self._states.interrupted:
            attempt.tell("interrupt")
        if (last := self._states.last_round) is not None:
            attempt.tell("stop", last if self._states.settled else max(last, self._recoveries.furthest + 1))
        self._began_again = time.monotonic()
        self._growth.begin()
        self._states.begin()

    def _catch_up(self, error: LostError) -> None:
        """Repeats the run with new actors up to the latest event."""
        place = None if self._latest is None else _place(self._latest)
        while True:
            self._unreported += self._recover(error)
            try:
                while (event := self._next()) is not None and (place is None or _place(event) != place):
                    pass
                return
            except LostError as again:
                error = again


@contextmanager
def ray_session(
    run: RunPlan,
    address: str | None,
    log: RayLog,
    waiting: Callable[[str], None] | None = None,
    kept: KeptCluster | None = None,
) -> Iterator[BackendSession]:
    """Carries out a run on the cluster at `address` (see `attached`), or on the connection and actors of earlier runs.

    Args:
        run: The run's plan.
        address: The cluster's address, or None.
        log: Receives Ray's own messages.
        waiting: See `reserved`.
        kept: The connection and actors to use; the next run can reuse them if this one completes.

    Raises:
        ResourceError: No cluster answers, or the hosts do not fit on it or cannot start.
    """
    with ExitStack() as stack:
        if kept is None:
            kept = stack.enter_context(KeptCluster())
        url = kept.connect(address, run.scenario.resources.dashboard)
        kept.log_to(log.path)
        try:
            session = RaySession(run, kept.actors, log, waiting)
            session.dashboard = url
            yield session
        except BaseException:
            kept.actors.discard()
            raise
        if not session.is_idle:  # calls of a round that was not awaited may still be running
            kept.actors.discard()


def _place(event: Event) -> tuple[type[Event], int] | None:
    """The position of a run at an event; None for events that another attempt may not have."""
    known = isinstance(event, RoundDone | Evaluated | RoundSettled | BudgetSpent)
    return (type(event), event.round) if known else None
