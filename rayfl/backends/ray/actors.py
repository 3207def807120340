"""The actors of a run; a later run may reuse them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rayfl.backends.ray.host_actor import HostActor, scheduler_name
from rayfl.backends.ray.object_arrays import ObjectArrays
from rayfl.backends.ray.placement import Reservation, host_options, nodes_of, reserved, resources_of
from rayfl.backends.ray.scheduler_actor import DURING_RUN, SchedulerActor
from rayfl.backends.ray.server_actor import ServerActor
from rayfl.backends.ray.user_code import UserCode
from rayfl.backends.ray.workers import ActorWorker, RayBackend
from rayfl.config.execution import HostRange
from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import edited
from rayfl.engine.assignment import most_hosts
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import RayflError, ResourceError, ScenarioError

ANY = 2**31
"""More hosts than any cluster has room for."""


class Actors:
    """The hosts, the server and the scheduler of runs, which `open` begins; hosts load PyTorch meanwhile.

    Args:
        scenario: The scenario of the first run.
        reservation: Has the place of each host.

    Attributes:
        reservation: The places of the hosts, and requests for more.
        server: The server.
        hosts: The hosts, by number.
        newcomers: Hosts that start beside them, and have no part in the run yet; their numbers follow.
        scheduler: The scheduler.
    """

    def __init__(self, scenario: Scenario, reservation: Reservation) -> None:
        self._name, self._scenario, self.reservation = f"rayfl-server-{uuid.uuid4().hex}", scenario, reservation
        self._made = 0
        # first, since they import the most: they get the processes that Ray has already started
        self.hosts = self._started(reservation.places, 0)
        self._places = list(reservation.places)
        self.newcomers: list[ActorWorker] = []
        self.server = ActorWorker(_beside_driver(ServerActor, name=self._name).remote(), "the server", ServerActor)
        scheduler = _beside_driver(SchedulerActor, [DURING_RUN], name=scheduler_name(self._name)).remote()
        self.scheduler = ActorWorker(scheduler, "the scheduler", SchedulerActor)

    @property
    def all(self) -> list[ActorWorker]:
        """All actors: hosts, server and scheduler."""
        return [*self.hosts, self.server, self.scheduler]

    def start_more(self) -> list[ActorWorker]:
        """Starts hosts in places that were requested and have arrived."""
        arrived = self.reservation.arrived()
        started = self._started(arrived, len(self.hosts) + len(self.newcomers))
        self._places += arrived
        self.newcomers += started
        return started

    def nodes(self) -> list[str]:
        """The node of every host and newcomer; empty for those whose node is lost, as long as Ray finds no other."""
        return nodes_of(self._places)

    def lose(self, numbers: Collection[int]) -> None:
        """Ends hosts or newcomers, and requests their places again; the numbers of the others close up."""
        workers, hosts = [*self.hosts, *self.newcomers], len(self.hosts)
        for number in numbers:
            ray.kill(workers[number].actor)
        lost = [self._places[number] for number in numbers]
        self.hosts = [host for number, host in enumerate(self.hosts) if number not in numbers]
        self.newcomers = [host for number, host in enumerate(self.newcomers, hosts) if number not in numbers]
        self._places = [place for place in self._places if place not in lost]
        self.reservation.lose(lost)
        for number, host in enumerate([*self.hosts, *self.newcomers]):
            host.name = _name(number)

    def admit(self, hosts: int) -> None:
        """Makes newcomers hosts, so that there are this many."""
        joined = hosts - len(self.hosts)
        self.hosts += self.newcomers[:joined]
        del self.newcomers[:joined]

    def dismiss(self, kept: int) -> None:
        """Ends all newcomers but the first ones, and gives back their places."""
        for worker in self.newcomers[kept:]:
            ray.kill(worker.actor)
        del self.newcomers[kept:]
        here = len(self.hosts) + kept
        self.reservation.give_back(self._places[here:])
        del self._places[here:]

    def _started(self, places: Sequence[PlacementGroupSchedulingStrategy], first: int) -> list[ActorWorker]:
        """Starts a host in each place; no two hosts have the same index, which counts those that were lost, too."""
        before, self._made = self._made, self._made + len(places)
        return [
            ActorWorker(
                _host_options(self._scenario, place).remote(before + number, self._name),
                _name(first + number),
                HostActor,
            )
            for number, place in enumerate(places)
        ]

    def open(self, run: RunPlan) -> None:
        """Begins a run on all actors; discards everything from the previous one."""
        self.admit(len(self.hosts) + len(self.newcomers))
        code, shared, whole = _sent(run)
        opened = self.server.call("open", code, shared, whole)
        begun = [host.call("open", opened) for host in self.hosts]  # after the server, which a host asks for the run
        begun.append(self.scheduler.call("open", code, shared, RayBackend(self.hosts, self.server, self.nodes())))
        # Ray lets later calls overtake one whose arguments are still awaited, and they would find the previous run
        ray.wait(begun, num_returns=len(begun))

    def end(self) -> None:
        for worker in (self.scheduler, *self.hosts, *self.newcomers, self.server):
            ray.kill(worker.actor)


class KeptActors:
    """Actors that consecutive runs share; a context manager that ends them."""

    def __init__(self) -> None:
        self._actors: Actors | None = None
        self._serve: Any = None
        self._imported: dict[str, str] = {}
        self._most, self._has_served = 0, False
        self._stack = ExitStack()

    def __enter__(self) -> KeptActors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def take(
        self, run: RunPlan, waiting: Callable[[str], None] | None = None, as_many_as_fit: bool = False
    ) -> tuple[Actors, bool]:
        """Returns the actors for a run, those of the previous run if they fit.

        They fit if the run would start as many hosts with the same resources, and no user module that they may have
        imported has changed. (Objects defined in the program itself are sent for every run.)

        Args:
            run: The run's plan.
            waiting: See `reserved`.
            as_many_as_fit: Take fewer hosts than requested if some were lost, or if the cluster no longer has room for
                all of them.

        Returns:
            The actors, and whether an earlier run used them.

        Raises:
            ScenarioError: The actors would import another code than this program has.
            ResourceError: See `reserved`.
        """
        serve, most = _served(run.scenario), most_hosts(run.phases, run.scenario.numerics.clients_at_once)
        changed = any(self._imported.get(module, digest) != digest for module, digest in run.worker_code.items())
        enough = as_many_as_fit or self._are_as_many(most)
        fit = self._actors is not None and self._serve == serve and enough and not changed
        grow = isinstance(run.scenario.resources.hosts, HostRange)
        _check_edits(run, () if grow or not fit else self._imported)
        if fit:
            assert self._actors is not None
            self._ask_for_more(run, most)
            served, self._has_served = self._has_served, True
            self._imported |= run.worker_code
            self._actors.open(run)
            return self._actors, served
        self.discard()
        try:
            resources = run.scenario.resources
            if as_many_as_fit and resources.hosts != "auto":
                if waiting is None and isinstance(resources.hosts, int):
                    waiting = _do_not_wait
                fewer = HostRange(min=1, max=resources.most_hosts(most))
                resources = resources.model_copy(update={"hosts": fewer})
            self._begin(run.scenario, most, self._stack.enter_context(reserved(resources, most, waiting)))
            assert self._actors is not None
            self._imported, self._has_served = dict(run.worker_code), True
            self._actors.open(run)
        except BaseException:
            self.discard()
            raise
        return self._actors, False

    def begin(self, scenario: Scenario) -> None:
        """Starts actors while a run is still being prepared. `take` replaces them if the run needs others.

        Does nothing if they do not fit the cluster, which `take` reports.
        """
        try:
            self._begin(scenario, ANY, self._stack.enter_context(reserved(scenario.resources, ANY, _do_not_wait)))
        except (RayflError, RayError):
            self.discard()

    def _ask_for_more(self, run: RunPlan, most: int) -> None:
        """Has as many requests wait as the run can use; those of the run before may be more or fewer."""
        if self._actors is not None and isinstance(run.scenario.resources.hosts, HostRange):
            self._actors.reservation.request(run.scenario.resources.most_hosts(most))

    def _begin(self, scenario: Scenario, most: int, reservation: Reservation) -> None:
        self._actors, self._serve, self._most = Actors(scenario, reservation), _served(scenario), most
        self._imported, self._has_served = {}, False
        self._stack.callback(self._actors.end)

    def _are_as_many(self, most: int) -> bool:
        """Whether a run that can use `most` hosts would start as many as are running now."""
        hosts = len(self._actors.hosts) if self._actors else 0
        return most in (hosts, self._most) or hosts < min(self._most, most)  # the cluster had no room for more

    def holds(self, actors: Actors) -> bool:
        """Whether these are the actors that the next run would share."""
        return self._actors is actors

    def discard(self) -> None:
        """Ends the actors and releases their reserved resources."""
        self._actors = None
        self._stack.close()


def _check_edits(run: RunPlan, imported: Collection[str]) -> None:
    """Checks that no module that the actors have yet to import was edited since this program imported it."""
    code = {module: digest for module, digest in run.worker_code.items() if module not in imported}
    if changed := edited(code):
        raise ScenarioError(
            f"{', '.join(changed)}: was edited after this program had imported it, so that worker processes would run "
            "other code; restart the program, or importlib.reload it"
        )


def _name(host: int) -> str:
    return f"worker {host}"


def _do_not_wait(why: str) -> None:
    raise ResourceError(why)


def _sent(run: RunPlan) -> tuple[UserCode, ray.ObjectRef[RunPlan], list[ray.ObjectRef[RunPlan]]]:
    """Puts a plan and its data into the object store, one copy per node.

    Returns:
        The user's code; the plan without data, for server and scheduler; and the plan for the hosts, which fetch it
        from the server, in a list: Ray would replace a bare reference among a call's arguments by its value.
    """
    arrays = ObjectArrays()
    for workload in run.workloads:
        workload.store.move_arrays(arrays.move)
        workload.initial.move_constants(arrays.move)
    return UserCode.of(run.scenario, run.worker_code), ray.put(run.without_data()), [ray.put(run)]


def _served(scenario: Scenario) -> Any:
    """The settings that hosts are created with; runs with equal settings can share hosts."""
    return resources_of(scenario), scenario.numerics, scenario.repeatable


def _beside_driver(actor: type, groups: Sequence[str] = (), **options: Any) -> Any:
    """An actor on the driver's node, so that losing any other node does not lose the server's state.

    Losing the driver's node ends the run anyway. The server and the scheduler mostly wait for the hosts, so they
    reserve no CPU.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote: Any = ray.remote  # its overloads do not know all of its options
    made = remote(concurrency_groups=dict.fromkeys(groups, 1))(actor) if groups else remote(actor)
    return made.options(num_cpus=0, scheduling_strategy=here, enable_task_events=False, **options)


def _host_options(scenario: Scenario, place: PlacementGroupSchedulingStrategy) -> Any:
    resources = resources_of(scenario)
    return ray.remote(HostActor).options(
        **host_options(resources),
        max_restarts=resources.restarts,
        # Unbounded, since Ray spends retries on a node before it declares the node dead. The number of restarts bounds
        # repeated failures.
        max_task_retries=-1 if scenario.repeatable else 0,
        enable_task_events=False,  # else Ray's head stores an event for each call: 20 MiB per 1 000 rounds
        allow_out_of_order_execution=True,  # an evaluation need not wait behind a relay hop that waits for its model
        scheduling_strategy=place,
    )
