"""One attempt to execute a run on a cluster, from the start of its actors until the run ends or an actor dies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Thread
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from rayfl.cluster.actors import Actors, KeptActors
from rayfl.cluster.deaths import PROBED_EVERY_S, Deaths, Head, reach_head
from rayfl.cluster.failures import as_rayfl_error, take_ray_text
from rayfl.cluster.ray_log import RayLog
from rayfl.cluster.workers import ActorWorker, RayBackend, names_of
from rayfl.engine.backend import Ref
from rayfl.engine.calls import Call
from rayfl.engine.job import Job
from rayfl.engine.watchdog import Watchdog
from rayfl.errors import ResourceError
from rayfl.models.discrete import SentModel, copied, joined, split
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
        head: The head of the cluster.

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
        self._log, self._names, self.head = log, dict[str, str](), Head(reach_head)
        self._stream: Iterator[Any] | None = None
        self._watching: Iterator[Event] | None = None
        self._latest: Event | None = None
        self._place = (job.scenario.phases[0].name, 1)
        while True:
            try:
                self.actors, served = kept.take(job, waiting, as_many_as_fit)
            except RayError as error:
                raise self._told(error) from None
            self._names = names_of(self.actors.all)
            self._watchdog = Watchdog(job.scenario, _WithHead(self.actors.scheduler, self.head))
            try:
                self.hosts: list[dict[str, str]] = self._described(self.actors)
                break
            except ResourceError:
                if not served:
                    raise
                kept.discard()  # one of the reused actors has died
        self.deaths = Deaths(self.actors, self.head)

    @property
    def has_begun(self) -> bool:
        """Whether `next` has been called."""
        return self._stream is not None

    def next(self) -> Event | None:
        """The next event; None at the end.

        Raises:
            LostError: An actor or a node died, or the scheduler hangs.
            RayflError: The run failed.
        """
        while True:
            if self._stream is None:
                self._stream, self._latest = self.actors.scheduler.call("run", returns="streaming"), None
            self._watching = self._watching or self._watched(self._stream)
            if (waiting := next(self._watching, None)) is not None:
                return waiting
            self._watching, ref = None, next(self._stream, None)
            if ref is not None:
                break
            if not isinstance(self._latest, RoundSettled):
                return None
            self._stream = None  # a stream ends at each settled round, where the run can be stopped
        event: Event = self._get(ref)
        self._latest, self._place = event, (event.phase, event.round)
        return event

    def tell(self, method: str, *arguments: Any) -> None:
        """Calls a method of the scheduler and waits until it returns.

        Raises:
            LostError: An actor died, or the scheduler hangs.
            RayflError: The call failed.
        """
        ref = self.actors.scheduler.call(method, *arguments)
        deque(self._watched(ref), maxlen=0)
        self._get(ref)

    def interrupt(self) -> None:
        """Passes an interruption on to the scheduler; safe in a signal handler."""
        # in another thread: the signal may have interrupted this one in the middle of a Ray call
        Thread(target=self.actors.scheduler.call, args=["interrupt"]).start()

    def committed(self, last: int | None) -> tuple[int, SentModel]:
        """See `Server.committed`.

        Raises:
            LostError: The server died or hangs.
        """
        round, model = self._from_server("committed", last)
        return round, _copied(model)

    def end_of_phase(self, round: int) -> SentModel | None:
        """See `Server.end_of_phase`.

        Raises:
            LostError: The server died or hangs.
        """
        model = self._from_server("end_of_phase", round)
        return None if model is None else _copied(model)

    def _from_server(self, method: str, argument: int | None) -> Any:
        ref = self.actors.server.call(method, argument)
        deque(self._watched(ref, Call(ref, self.actors.server.name)), maxlen=0)
        return self._get(ref)

    def suspect(self, deaths: Mapping[int, int]) -> None:
        """Makes hosts announce each client before they train it, and passes on earlier counts of deaths to the server.

        Args:
            deaths: Counts from the previous attempt; see `Deaths.in_updates`.
        """
        calls = [self.actors.server.call("suspect", deaths), *(host.call("watch") for host in self.actors.hosts)]
        for ref in calls:
            self._get(ref)

    def _watched(self, ref: Any, asked: Call | None = None) -> Iterator[Event]:
        """Waits for a result of the scheduler, or of `asked`; the events say that it does not answer."""
        scheduler = self.actors.scheduler
        return self._watchdog.wait_while_answered(
            ref, lambda: asked or Call(scheduler.call("answer"), scheduler.name), *self._place
        )

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


class _WithHead(RayBackend):
    """Waits for results while the cluster has a head; see `Head.check`."""

    def __init__(self, scheduler: ActorWorker, head: Head) -> None:
        super().__init__([], scheduler)
        self._head = head

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        deadline = time.monotonic() + timeout_s
        while True:
            self._head.check()
            left = deadline - time.monotonic()
            done = super().wait(refs, max(0.0, min(left, PROBED_EVERY_S)))
            if done or left <= PROBED_EVERY_S:
                return done


def _copied(model: SentModel) -> SentModel:
    """A model of its own memory: Ray returns views of shared memory, which ends with the actors."""
    vector, discrete = split(model)
    return joined(np.array(vector), copied(discrete))
