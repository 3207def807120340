"""Backend `ray`: hosts, server and scheduler as actors on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from rayfl.cluster.actors import Actors
from rayfl.cluster.failures import as_rayfl_error, take_ray_text
from rayfl.cluster.kept_cluster import KeptCluster
from rayfl.cluster.ray_log import RayLog
from rayfl.cluster.workers import names_of
from rayfl.engine.job import Job, Session
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.state_store import StateStore
from rayfl.errors import ResourceError
from rayfl.planning.events import Event, RoundDone, RoundSettled


class RaySession:
    """A run on a cluster.

    Attributes:
        hosts: What each host says of itself, once the session has started.
        dashboard: The address of Ray's dashboard, where the session has started one.
        is_over: Whether all that was begun has come to its end.
    """

    dashboard: str | None = None

    def __init__(self, job: Job, actors: Actors, log: RayLog) -> None:
        self._actors, self._log = actors, log
        self._server, self._hosts, self._scheduler = actors.server, actors.hosts, actors.scheduler
        self.hosts: list[dict[str, str]] = []
        self.is_over, self._stopped = False, False
        self._last_reported = 0 if job.settles else None

    def start(self) -> None:
        """Waits for the hosts.

        Raises:
            ResourceError: One of them cannot start.
        """
        answers = [host.call("describe") for host in self._hosts]
        ray.wait(answers, num_returns=len(answers))
        self.hosts = [self._get(ref) for ref in answers]

    def events(self) -> Iterator[Event]:
        event: Event | None = None
        while event is None or isinstance(event, RoundSettled):
            event = None
            stream: Any = self._scheduler.call("run", returns="streaming")
            for ref in stream:
                event = self._get(ref)
                if isinstance(event, RoundDone) and self._last_reported is not None:
                    self._last_reported = event.round
                yield event
            if event is None:  # it ended with the round that settled before
                break
        self.is_over = not self._stopped

    def stop(self) -> None:
        self._stopped = True
        self._get(self._scheduler.call("stop"))

    def checkpoint_to(self, store: StateStore) -> None:
        self._get(self._scheduler.call("checkpoint_to", store))

    def interrupt(self) -> None:
        self._stopped = True
        # beside this thread, which a signal may have interrupted in the middle of a call of Ray's
        Thread(target=self._scheduler.call, args=["interrupt"]).start()

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        self._get(self._scheduler.call("restore", snapshot, store))

    def committed(self) -> tuple[int, np.ndarray]:
        round, model = self._get(self._server.call("committed", self._last_reported))
        return round, np.array(model)  # Ray's arrays are views of shared memory that lives no longer than the session

    def _get(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except RayError as error:
            told = as_rayfl_error(error, names_of(self._actors.all))
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
            session = _started(job, kept, log, waiting)
            session.dashboard = url
            yield session
        except BaseException:
            kept.actors.discard()
            raise
        if not session.is_over:  # something of a round that nobody waited for may still be under way
            kept.actors.discard()


def _started(job: Job, kept: KeptCluster, log: RayLog, waiting: Callable[[str], None] | None) -> RaySession:
    try:
        while True:
            actors, served = kept.actors.take(job, waiting)
            session = RaySession(job, actors, log)
            try:
                session.start()
                return session
            except ResourceError:
                if not served:
                    raise
                kept.actors.discard()  # one of them died since
    except RayError as error:
        told = as_rayfl_error(error, {})
        log.write(take_ray_text(told))
        raise told from None
