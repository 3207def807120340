"""One attempt to execute a run on a cluster, until the run ends or an actor dies.

`Deaths` tells which of its actors have died, as far as the driver can tell.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import dropwhile
from threading import Thread
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from rayfl.backends.ray.actors import Actors, KeptActors
from rayfl.backends.ray.failures import as_rayfl_error, take_ray_text
from rayfl.backends.ray.growth import Growth
from rayfl.backends.ray.head import Head, WithHead, reach_head
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.private import draining_nodes, restarts
from rayfl.backends.ray.workers import names_of
from rayfl.engine.backend import Call
from rayfl.engine.events import Event, HostRestarted, HostsChanged, RoundDone, RoundSettled
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.watchdog import Watchdog
from rayfl.errors import ResourceError
from rayfl.models.tensors import SentModel, constants_of, copied, joined, split

ASKS_EVERY_S = 5.0
"""How often to ask Ray which actors it has restarted."""

ANSWERS_WITHIN_S = 10.0
"""If the server takes longer, it is dead or hangs."""


class Deaths:
    """Watches a run's actors, which earlier runs may have used.

    Args:
        actors: The run's actors.
        head: The head of the cluster.
        clock: A monotonic clock, in seconds.
        with_states: Names of the phases in which hosts may keep states of clients.

    Attributes:
        without_node: Numbers of hosts that were ended, since their node was lost and no other has room for them.
    """

    def __init__(
        self,
        actors: Actors,
        head: Head,
        clock: Callable[[], float] = time.monotonic,
        with_states: Collection[str] = (),
    ) -> None:
        self._head, self._clock, self._with_states = head, clock, with_states
        self._stateful: list[HostRestarted] = []
        self._actors, self._asked = actors, clock()
        self._restarts: list[int] = []
        self._looked, self._missing, self.without_node = clock(), set[int](), set[int]()
        self.note_joined()

    def note_joined(self) -> None:
        """Watches hosts that have joined, too."""
        self._restarts += [restarts(host.actor) for host in self._actors.hosts[len(self._restarts) :]]

    def since(self, done: RoundDone) -> Iterator[HostRestarted]:
        """Hosts that Ray has restarted since the last call; asks Ray every few seconds at most.

        Those that may have kept states of clients are left to `unmissed`: the run recovers once one of the states is
        missed, and the death would count twice.
        """
        if self._clock() - self._asked < ASKS_EVERY_S or not self._head.is_there():
            return
        self._asked = self._clock()
        for number, host in enumerate(self._actors.hosts):
            before, self._restarts[number] = self._restarts[number], restarts(host.actor)
            if self._restarts[number] > before:
                restarted = HostRestarted(done.phase, done.round, number, self._restarts[number])
                if done.phase in self._with_states:
                    self._stateful.append(restarted)
                else:
                    yield restarted

    def unmissed(self) -> Iterator[HostRestarted]:
        """Hosts that may have kept states and were restarted; to be called once it is clear that none was missed."""
        yield from self._stateful
        self._stateful = []

    def end_homeless(self) -> None:
        """Ends hosts that have had no node for some seconds: their calls fail, instead of waiting for a new node."""
        if self._clock() - self._looked < ASKS_EVERY_S or not self._head.is_there():
            return
        self._looked = self._clock()
        hosts = self._actors.hosts
        missing = {number for number, node in enumerate(self._actors.nodes()[: len(hosts)]) if not node}
        for number in (missing & self._missing) - self.without_node:
            ray.kill(hosts[number].actor)
            self.without_node.add(number)
        self._missing = missing

    def silent(self, within_s: float) -> list[int]:
        """The numbers of hosts and newcomers that do not answer within some seconds, the dead ones among them."""
        return _silent([host.call("describe") for host in [*self._actors.hosts, *self._actors.newcomers]], within_s)

    def others_answer(self) -> bool:
        """Whether server and scheduler do."""
        server, scheduler = self._actors.server.call("deaths"), self._actors.scheduler.call("answer")
        return not _silent([server, scheduler], ANSWERS_WITHIN_S)

    def to_leave(self) -> list[int]:
        """The numbers of hosts on nodes that are about to go, such as spot nodes with notice."""
        leaving = draining_nodes()
        nodes = self._actors.nodes()[: len(self._actors.hosts)] if leaving else []
        return [number for number, node in enumerate(nodes) if node in leaving]

    def in_updates(self) -> dict[int, int]:
        """How often hosts died in each client's updates; empty if the server, which counts, is dead too."""
        try:
            deaths: dict[int, int] = ray.get(self._actors.server.call("deaths"), timeout=ANSWERS_WITHIN_S)
        except RayError:
            return {}
        return deaths


def _silent(refs: list[Any], within_s: float) -> list[int]:
    """The positions of calls that fail, or that take longer."""
    ray.wait(refs, num_returns=len(refs), timeout=within_s)
    silent: list[int] = []
    for number, ref in enumerate(refs):
        try:
            ray.get(ref, timeout=0)
        except RayError:
            silent.append(number)
    return silent


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
        self._is_over, self._patience_s = False, run.scenario.resources.watchdog_s
        while True:
            try:
                self.actors, served = kept.take(run, waiting, as_many_as_fit)
            except RayError as error:
                raise self._told(error) from None
            self._names = names_of(self.actors.all)
            self.deaths = Deaths(self.actors, self.head, with_states=_phases_with_states(run))
            self._watchdog = Watchdog(
                run.scenario, WithHead(self.actors.scheduler, self.head, self.deaths.end_homeless)
            )
            try:
                self.hosts: list[dict[str, str]] = self._described(self.actors)
                break
            except ResourceError:
                if not served:
                    raise
                kept.discard()  # one of the reused actors has died
        self.growth = Growth(self.actors, log)

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
                self._is_over = True
                return None
            self._stream = None  # a stream ends at each settled round, where the run may be stopped
        try:
            event: Event = self._get(ref)
        except Exception:
            self._is_over = True
            raise
        if isinstance(event, HostsChanged):
            self.hosts += self.growth.admit(event.hosts)
            self.deaths.note_joined()
            self._names |= names_of(self.actors.hosts)
        self._latest, self._place = event, (event.phase, event.round)
        return event

    def goes_on(self) -> bool:
        """Ends hosts that do not answer; whether the others, server and scheduler can begin again, as they are.

        They cannot as long as the scheduler is in a round.
        """
        if not self._is_over or not self.deaths.others_answer():
            return False
        lost = self.deaths.silent(self._patience_s)
        if len(lost) == len(self.actors.hosts) + len(self.actors.newcomers):
            return False
        self.actors.lose(lost)
        return True

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


def _phases_with_states(run: RunPlan) -> list[str]:
    """The first phase whose clients keep a state beyond a round, and those after it."""
    after = dropwhile(lambda plan: not plan.keeps_client_state, run.phases)
    return [plan.phase.name for plan in after]


def _copied(model: SentModel) -> SentModel:
    """A model of its own memory: Ray returns views of shared memory, which ends with the actors."""
    vector, discrete = split(model)
    constants = constants_of(model)
    return joined(np.array(vector), copied(discrete), None if constants is None else np.array(constants))
