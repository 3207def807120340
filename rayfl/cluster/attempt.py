"""One attempt to carry a run out on a cluster: actors, from their start to the end of the run or to a death."""

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
    """Takes actors, and waits until its hosts have started.

    Args:
        job: What to run.
        kept: Gives the actors.
        log: Receives what Ray itself has to say.
        waiting: See `reserved`.
        as_many_as_fit: See `KeptActors.take`.

    Attributes:
        actors: Hosts, server and scheduler.
        hosts: What each host says of itself.
        deaths: What dies of them.

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
                kept.discard()  # one of them died since
        self.deaths = Deaths(self.actors)

    @property
    def has_begun(self) -> bool:
        """Whether events were asked for."""
        return self._stream is not None

    def next(self) -> Event | None:
        """The next event; None at the end.

        Raises:
            LostError: Something died.
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
            self._stream = None  # it went up to what was settled, and could be stopped there
        self._latest = self._get(ref)
        return self._latest

    def tell(self, method: str, *arguments: Any) -> None:
        """Calls a method of the scheduler, and waits for it.

        Raises:
            RayflError: It failed.
        """
        self._get(self.actors.scheduler.call(method, *arguments))

    def interrupt(self) -> None:
        """Passes an interruption on; may be called by a signal's handler."""
        # beside this thread, which a signal may have interrupted in the middle of a call of Ray's
        Thread(target=self.actors.scheduler.call, args=["interrupt"]).start()

    def committed(self, last: int | None) -> tuple[int, np.ndarray]:
        """See `Server.committed`.

        Raises:
            LostError: The server died.
        """
        round, model = self._get(self.actors.server.call("committed", last))
        return round, np.array(model)  # Ray's is a view of shared memory that lives no longer than the actors

    def suspect(self, deaths: Mapping[int, int]) -> None:
        """Has hosts say whom they are about to train, and the server count on from what another attempt has counted.

        Args:
            deaths: See `Deaths.in_updates`.
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
