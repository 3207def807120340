"""Backend `ray`: hosts, server and scheduler as actors on a cluster, which are replaced when some of them die."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Thread
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from rayfl.cluster.actors import Actors, KeptActors
from rayfl.cluster.deaths import Deaths
from rayfl.cluster.failures import as_rayfl_error, take_ray_text
from rayfl.cluster.kept_cluster import KeptCluster
from rayfl.cluster.ray_log import RayLog
from rayfl.cluster.recovery import Recoveries
from rayfl.cluster.repeating import resources_of
from rayfl.cluster.workers import names_of
from rayfl.engine.job import Job, Session
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.server import BEFORE
from rayfl.engine.state_store import DamagedStateError, StateStore
from rayfl.errors import LostError, ResourceError
from rayfl.planning.events import (
    BudgetSpent,
    Evaluated,
    Event,
    Recovering,
    RoundDone,
    RoundSettled,
    SnapshotTaken,
)


class RaySession:
    """A run on a cluster.

    When an actor or its node dies, or does not answer any more, the run goes on by itself, on new actors, after the
    last snapshot or from its beginning. The events of rounds since then come again; nothing in them differs but the
    seconds.

    Args:
        job: What to run.
        actors: Which it takes its actors from.
        log: Receives what Ray itself has to say.
        waiting: See `reserved`.

    Attributes:
        hosts: What each host says of itself, once the session has started.
        dashboard: The address of Ray's dashboard, where the session has started one.
        is_over: Whether all that was begun has come to its end.
    """

    dashboard: str | None = None

    def __init__(self, job: Job, actors: KeptActors, log: RayLog, waiting: Callable[[str], None] | None = None) -> None:
        self._job, self._kept, self._log, self._waiting = job, actors, log, waiting
        self._actors: Actors | None = None
        self._deaths: Deaths | None = None
        self.hosts: list[dict[str, str]] = []
        self.is_over, self._given_up = False, False
        self._recoveries = Recoveries(resources_of(job.scenario).restarts)
        self._snapshots: deque[RunSnapshot] = deque(maxlen=job.scenario.checkpoint.keep)
        self._store: StateStore | None = None
        self._takes_snapshots, self._interrupted = False, False
        self._stopped_after: int | None = None
        self._last_reported = 0
        self._stream: Iterator[Any] | None = None
        self._latest: Event | None = None
        self._unreported: list[Event] = []
        self._final: tuple[int, np.ndarray] | None = None
        self._began = self._began_again = time.monotonic()

    def start(self) -> None:
        """Waits for the hosts.

        Raises:
            ResourceError: One of them cannot start.
        """
        while True:
            self._actors, served = self._kept.take(self._job, self._waiting)
            try:
                self._wait_for_hosts(self._actors)
                return
            except ResourceError:
                if not served:
                    raise
                self._kept.discard()  # one of them died since

    def events(self) -> Iterator[Event]:
        self._began = self._began_again = time.monotonic()
        while True:
            yield from self._unreported
            self._unreported.clear()
            try:
                event = self._next()
                if event is None:
                    self._final = self._committed()
                    break
            except LostError as error:
                yield from self._recover(error)
                continue
            yield event
            if isinstance(event, RoundDone) and self._deaths is not None:
                yield from self._deaths.since(event)
        self.is_over = self._stopped_after is None and not self._interrupted

    def stop(self) -> None:
        assert isinstance(self._latest, RoundSettled)
        self._stopped_after = self._latest.round
        self._stop_where_asked()

    def checkpoint_to(self, store: StateStore) -> None:
        self._store, self._takes_snapshots = store, True
        self._of_scheduler("checkpoint_to", store)

    def interrupt(self) -> None:
        self._interrupted = True
        if self._actors is not None:
            # beside this thread, which a signal may have interrupted in the middle of a call of Ray's
            Thread(target=self._actors.scheduler.call, args=["interrupt"]).start()

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        self._of_scheduler("restore", snapshot, store)
        self._store, self._last_reported = store, snapshot.index.round
        self._snapshots.append(snapshot)
        self._recoveries.reached(snapshot.index.round)

    def committed(self) -> tuple[int, np.ndarray]:
        """See `Session.committed`; where the server died for good, that of the last snapshot."""
        while self._final is None:
            try:
                return self._committed()
            except LostError as error:
                if self._given_up or self._stream is None:
                    return self._of_last_snapshot(error)
                self._catch_up(error)
        return self._final

    def _committed(self) -> tuple[int, np.ndarray]:
        last = self._last_reported if self._job.settles else None
        round, model = self._get(self._running.server.call("committed", last))
        return round, np.array(model)  # Ray's is a view of shared memory that lives no longer than the session

    @property
    def _running(self) -> Actors:
        if self._actors is None:
            raise LostError("the run's actors are gone")
        return self._actors

    def _next(self) -> Event | None:
        """The next event; None at the end."""
        while True:
            if self._stream is None:
                self._stream, self._latest = self._running.scheduler.call("run", returns="streaming"), None
            ref = next(self._stream, None)
            if ref is not None:
                break
            if not isinstance(self._latest, RoundSettled):
                return None
            self._stream = None  # it went up to what was settled, and could be stopped there
        event: Event = self._get(ref)
        match event:
            case RoundDone():
                self._last_reported = event.round
                self._recoveries.reached(event.round)
                event = replace(event, seconds=event.seconds + self._began_again - self._began)
            case SnapshotTaken():
                self._snapshots.append(RunSnapshot.from_json(event.snapshot))
        self._latest = event
        if isinstance(event, RoundSettled) and event.round == self._stopped_after:
            self._stop_where_asked()
        return event

    def _recover(self, error: ResourceError) -> Iterator[Recovering]:
        """Goes on with new actors, once or until the policy gives up."""
        while True:
            try:
                attempt = self._recoveries.next(error)
            except ResourceError:
                self._given_up = True
                raise
            after = self._snapshots[-1].index if self._snapshots else BEFORE
            phase = after.config(self._job.scenario).name
            yield Recovering(phase, after.round, str(error), attempt.number, attempt.most, attempt.pause_s)
            time.sleep(attempt.pause_s)
            try:
                self._begin_again()
                return
            except ResourceError as again:
                error = again

    def _begin_again(self) -> None:
        suspects = self._deaths.in_updates() if self._deaths else {}
        self._actors, self._deaths, self._stream, self._latest = None, None, None, None
        self._kept.discard()
        self._actors, _ = self._kept.take(self._job, self._waiting, as_many_as_fit=True)
        self._wait_for_hosts(self._actors)
        self._get(self._actors.server.call("suspect", suspects))
        for host in self._actors.hosts:
            self._get(host.call("watch"))
        self._restore_latest()
        if self._takes_snapshots:
            self._of_scheduler("checkpoint_to", self._store)
        if self._interrupted:
            self._of_scheduler("interrupt")
        self._began_again = time.monotonic()

    def _restore_latest(self) -> None:
        while self._snapshots:
            try:
                self._of_scheduler("restore", self._snapshots[-1], self._store)
            except DamagedStateError as error:
                self._log.write(f"the snapshot of round {self._snapshots[-1].index.round} cannot be used: {error}")
                self._snapshots.pop()
                continue
            break
        self._last_reported = self._snapshots[-1].index.round if self._snapshots else 0

    def _catch_up(self, error: LostError) -> None:
        """Goes on with new actors to where the events have come to."""
        place = None if self._latest is None else _place(self._latest)
        self._unreported += self._recover(error)
        while (event := self._next()) is not None:
            if _place(event) == place is not None:
                return

    def _of_last_snapshot(self, error: LostError) -> tuple[int, np.ndarray]:
        if not self._snapshots or self._store is None:
            raise error
        snapshot = self._snapshots[-1]
        arrays = self._store.read(snapshot.server.latest.stored)
        return snapshot.index.round, arrays.get("eval_model", arrays["model"])

    def _stop_where_asked(self) -> None:
        try:
            self._of_scheduler("stop")
        except LostError:
            return  # whoever takes the next event learns of it, and stops the next scheduler at the same round

    def _wait_for_hosts(self, actors: Actors) -> None:
        answers = [host.call("describe") for host in actors.hosts]
        ray.wait(answers, num_returns=len(answers))
        self.hosts = [self._get(ref) for ref in answers]
        self._deaths = Deaths(actors)

    def _of_scheduler(self, method: str, *arguments: Any) -> Any:
        return self._get(self._running.scheduler.call(method, *arguments))

    def _get(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except RayError as error:
            told = as_rayfl_error(error, names_of(self._actors.all) if self._actors else {})
            self._log.write(take_ray_text(told))
            raise told from None


@contextmanager
def ray_session(
    job: Job,
    address: str | None,
    log: RayLog,
    waiting: Callable[[str], None] | None = None,
    kept: KeptCluster | None = None,
) -> Iterator[Session]:
    """Runs on the cluster at `address` (see `attached`), or with what runs before it have left.

    Args:
        job: What to run.
        address: The cluster's, or None.
        log: Receives what Ray itself has to say.
        waiting: See `reserved`.
        kept: The connection and the actors that this run uses, and leaves to the next one if it comes to its end.

    Raises:
        ResourceError: No cluster answers, or the hosts do not fit it or cannot start.
    """
    with ExitStack() as stack:
        if kept is None:
            kept = stack.enter_context(KeptCluster())
        url = kept.connect(address, job.scenario.resources.dashboard)
        kept.log_to(log.path)
        try:
            session = RaySession(job, kept.actors, log, waiting)
            try:
                session.start()
            except RayError as error:
                told = as_rayfl_error(error, {})
                log.write(take_ray_text(told))
                raise told from None
            session.dashboard = url
            yield session
        except BaseException:
            kept.actors.discard()
            raise
        if not session.is_over:  # something of a round that nobody waited for may still be under way
            kept.actors.discard()


def _place(event: Event) -> tuple[type[Event], int] | None:
    """Where a run is; None for events that another attempt need not have."""
    known = isinstance(event, RoundDone | Evaluated | RoundSettled | BudgetSpent)
    return (type(event), event.round) if known else None
