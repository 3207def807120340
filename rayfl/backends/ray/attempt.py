"""One attempt to execute a run on a cluster, from the start of its actors until the run ends or an actor dies.

`Deaths` and `Head` tell which of its actors have died and whether the cluster's head is there, as far as the driver can
tell.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Thread
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util import placement_group_table

from rayfl.backends.ray.actors import Actors, KeptActors
from rayfl.backends.ray.failures import as_rayfl_error, take_ray_text
from rayfl.backends.ray.growth import Growth
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.private import restarts
from rayfl.backends.ray.workers import ActorWorker, RayBackend, names_of
from rayfl.engine.backend import Call, Ref
from rayfl.engine.events import Event, HostRestarted, HostsAdded, RoundDone, RoundSettled
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.watchdog import Watchdog
from rayfl.errors import LostError, ResourceError
from rayfl.models.tensors import SentModel, constants_of, copied, joined, split

ASKS_EVERY_S = 5.0
"""How often to ask Ray which actors it has restarted."""

ANSWERS_WITHIN_S = 10.0
"""If the server takes longer, it is dead or hangs."""


PROBED_EVERY_S = 5.0
"""How often to see whether the cluster's head is there."""

ENDS_AFTER_S = float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", "60"))  # noqa: SIM112
"""How long after the loss of the head Ray ends every program of the cluster."""

TO_END_S = 20.0
"""How long before that a run ends by itself, to write how it ended."""


class Head:
    """The head of the cluster (its control service), without which Ray ends every program after a minute.

    Args:
        reach: Connects to it, or raises OSError.
        most_s: How long it may be out of reach, since one that is replicated comes back.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        reach: Callable[[], None],
        most_s: float = ENDS_AFTER_S - TO_END_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reach, self._most_s, self._clock = reach, most_s, clock
        self._probed = self._seen = clock()

    def check(self) -> None:
        """Sees every few seconds whether it is there; raises what `is_there` raises."""
        if self._clock() - self._probed >= PROBED_EVERY_S:
            self.is_there()

    def is_there(self) -> bool:
        """Whether it can be reached; to be asked before each of Ray's calls to it, which block without it.

        Raises:
            ResourceError: It has been out of reach for so long that Ray is about to end this program.
        """
        error = self._reached()
        self._probed = self._clock()
        if error is None:
            self._seen = self._probed
        elif self._probed - self._seen > self._most_s:
            raise ResourceError(f"the head of the Ray cluster is lost ({error}), and with it all processes of the run")
        return error is None

    def _reached(self) -> OSError | None:
        try:
            self._reach()
        except OSError as error:
            return error
        return None


def reach_head() -> None:
    """Connects to the head of the cluster that this program is attached to, or raises OSError."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=PROBED_EVERY_S).close()


class Deaths:
    """Watches a run's actors, which earlier runs may have used.

    Args:
        actors: The run's actors.
        head: The head of the cluster.
    """

    def __init__(self, actors: Actors, head: Head) -> None:
        self._head = head
        self._actors, self._asked = actors, time.monotonic()
        self._restarts: list[int] = []
        self.note_joined()

    def note_joined(self) -> None:
        """Watches hosts that have joined, too."""
        self._restarts += [restarts(host.actor) for host in self._actors.hosts[len(self._restarts) :]]

    def since(self, done: RoundDone) -> Iterator[HostRestarted]:
        """Hosts that Ray has restarted since the last call; asks Ray every few seconds at most."""
        if time.monotonic() - self._asked < ASKS_EVERY_S or not self._head.is_there():
            return
        self._asked = time.monotonic()
        for number, host in enumerate(self._actors.hosts):
            before, self._restarts[number] = self._restarts[number], restarts(host.actor)
            if self._restarts[number] > before:
                yield HostRestarted(done.phase, done.round, number, self._restarts[number])

    def check_places(self) -> None:
        """Checks that all hosts have a place, since Ray waits forever for a node to replace a lost one.

        Raises:
            LostError: A node was lost, and no other has room for its hosts.
        """
        for group in self._actors.groups:
            if self._head.is_there() and placement_group_table(group).get("state") == "RESCHEDULING":
                raise LostError("a node was lost with its workers, and no other node has room for them")

    def in_updates(self) -> dict[int, int]:
        """How often hosts died in each client's updates; empty if the server, which counts, is dead too."""
        try:
            deaths: dict[int, int] = ray.get(self._actors.server.call("deaths"), timeout=ANSWERS_WITHIN_S)
        except RayError:
            return {}
        return deaths


class Attempt:
    """Acquires actors and waits until the hosts have started.

    Args:
        run: The run's plan.
        kept: Provides the actors.
        log: Receives Ray's own messages.
        waiting: See `reserved`.
        as_many_as_fit: See `KeptActors.take`.

    Attributes:
        actors: Hosts, server and scheduler.
        hosts: The description of each host (`Host.describe`).
        deaths: Watches for actors that die.
        growth: Lets more hosts join.
        head: The head of the cluster.

    Raises:
        ResourceError: The hosts do not fit the cluster, or one of them cannot start.
    """

    def __init__(
        self,
        run: RunPlan,
        kept: KeptActors,
        log: RayLog,
        waiting: Callable[[str], None] | None = None,
        as_many_as_fit: bool = False,
    ) -> None:
        self._log, self._names, self.head = log, dict[str, str](), Head(reach_head)
        self._stream: Iterator[Any] | None = None
        self._watching: Iterator[Event] | None = None
        self._latest: Event | None = None
        self._place = (run.scenario.phases[0].name, 1)
        while True:
            try:
                self.actors, served = kept.take(run, waiting, as_many_as_fit)
            except RayError as error:
                raise self._told(error) from None
            self._names = names_of(self.actors.all)
            self._watchdog = Watchdog(run.scenario, _WithHead(self.actors.scheduler, self.head))
            try:
                self.hosts: list[dict[str, str]] = self._described(self.actors)
                break
            except ResourceError:
                if not served:
                    raise
                kept.discard()  # one of the reused actors has died
        self.deaths, self.growth = Deaths(self.actors, self.head), Growth(self.actors, log)

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
            self._stream = None  # a stream ends at each settled round, where the run may be stopped
        event: Event = self._get(ref)
        if isinstance(event, HostsAdded):
            self.hosts += self.growth.admit(event.hosts)
            self.deaths.note_joined()
            self._names |= names_of(self.actors.hosts)
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

    def post(self, method: str, *arguments: Any) -> None:
        """Calls a method of the scheduler during the run and does not wait for it; safe in a signal handler."""
        # in another thread: the signal may have interrupted this one in the middle of a Ray call
        Thread(target=self.actors.scheduler.call, args=[method, *arguments]).start()

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
        self.growth.watched = True
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
        converted = as_rayfl_error(error, self._names)
        self._log.write(take_ray_text(converted))
        return converted


class _WithHead(RayBackend):
    """Waits for results while the cluster has a head; see `Head.check`."""

    def __init__(self, scheduler: ActorWorker, head: Head) -> None:
        super().__init__([], scheduler)
        self._head = head

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        deadline = time.monotonic() + timeout_s
        while True:
            self._head.check()
            seconds_left = deadline - time.monotonic()
            done = super().wait(refs, max(0.0, min(seconds_left, PROBED_EVERY_S)))
            if done or seconds_left <= PROBED_EVERY_S:
                return done


def _copied(model: SentModel) -> SentModel:
    """A model of its own memory: Ray returns views of shared memory, which ends with the actors."""
    vector, discrete = split(model)
    constants = constants_of(model)
    return joined(np.array(vector), copied(discrete), None if constants is None else np.array(constants))
