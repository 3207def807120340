"""One attempt to execute a run on a cluster, from the start of its actors until the run ends or an actor dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from rayfl.cluster.actors import Actors, KeptActors
from rayfl.cluster.deaths import Deaths
from rayfl.cluster.failures import as_rayfl_error, take_ray_text
from rayfl.cluster.ray_log import RayLog
from rayfl.cluster.workers import names_of
from rayfl.engine.job import Job
from rayfl.errors import ResourceError
from rayfl.planning.events import Event, RoundSettled


class Attempt:
    """Acquires actors and waits until the hosts have started.

    Args:
        job: The job to run.
        kept: Provides the actors.
        log: Receives Ray's own messages.
        waiting: See `reserved`.
        as_many_as_fit: See `KeptActors.take`.

    Attributes:
        actors: Hosts, server and scheduler.
        hosts: The description of each host (`Host.describe`).
        deaths: Watches for actors that die.

    Raises:
        ResourceError: The hosts do not fit the cluster, or one of them cannot start.
    """

    def __init__(
        self,
        job: Job,
        kept: KeptActors,
        log: RayLog,
        waiting: Callable[[str], None] | None = None,
        as_many_as_fit: bool = False,
    ) -> None:
        self._log, self._names = log, dict[str, str]()
        self._stream: Iterator[Any] | None = None
        self._latest: Event | None = None
        while True:
            try:
                self.actors, served = kept.take(job, waiting, as_many_as_fit)
            except RayError as error:
                raise self._told(error) from None
            self._names = names_of(self.actors.all)
            try:
                self.hosts: list[dict[str, str]] = self._described(self.actors)
                break
            except ResourceError:
                if not served:
                    raise
                kept.discard()  # one of the reused actors has died
        self.deaths = Deaths(self.actors)

    @property
    def has_begun(self) -> bool:
        """Whether `next` has been called."""
        return self._stream is not None

    def next(self) -> Event | None:
        """The next event; None at the end.

        Raises:
            LostError: An actor or a node died.
            RayflError: The run failed.
        """
        while True:
            if self._stream is None:
                self._stream, self._latest = self.actors.scheduler.call("run", returns="streaming"), None
            ref = next(self._stream, None)
            if ref is not None:
                break
            if not isinstance(self._latest, RoundSettled):
                return None
            self._stream = None  # a stream ends at each settled round, where the run can be stopped
        self._latest = self._get(ref)
        return self._latest

    def tell(self, method: str, *arguments: Any) -> None:
        """Calls a method of the scheduler and waits until it returns.

        Raises:
            RayflError: The call failed.
        """
        self._get(self.actors.scheduler.call(method, *arguments))

    def interrupt(self) -> None:
        """Passes an interruption on to the scheduler; safe in a signal handler."""
        # in another thread: the signal may have interrupted this one in the middle of a Ray call
        Thread(target=self.actors.scheduler.call, args=["interrupt"]).start()

    def committed(self, last: int | None) -> tuple[int, np.ndarray]:
        """See `Server.committed`.

        Raises:
            LostError: The server died.
        """
        round, model = self._get(self.actors.server.call("committed", last))
        return round, np.array(model)  # Ray returns a view of shared memory, which ends with the actors

    def suspect(self, deaths: Mapping[int, int]) -> None:
        """Makes hosts announce each client before they train it, and passes on earlier counts of deaths to the server.

        Args:
            deaths: Counts from the previous attempt; see `Deaths.in_updates`.
        """
        calls = [self.actors.server.call("suspect", deaths), *(host.call("watch") for host in self.actors.hosts)]
        for ref in calls:
            self._get(ref)

    def _described(self, actors: Actors) -> list[dict[str, str]]:
        answers = [host.call("describe") for host in actors.hosts]
        ray.wait(answers, num_returns=len(answers))
        return [self._get(ref) for ref in answers]

    def _get(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except RayError as error:
            raise self._told(error) from None

    def _told(self, error: RayError) -> Exception:
        told = as_rayfl_error(error, self._names)
        self._log.write(take_ray_text(told))
        return told
