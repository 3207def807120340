"""The actors of a run; a later run may reuse them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rayfl.backends.ray.host_actor import HostActor, scheduler_name
from rayfl.backends.ray.object_arrays import ObjectArrays
from rayfl.backends.ray.placement import host_options, nodes_of, reserved, resources_of
from rayfl.backends.ray.scheduler_actor import DURING_RUN, SchedulerActor
from rayfl.backends.ray.server_actor import ServerActor
from rayfl.backends.ray.user_code import UserCode
from rayfl.backends.ray.workers import ActorWorker, RayBackend
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import most_hosts
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import RayflError

ANY = 2**31
"""More hosts than any cluster has room for."""


class Actors:
    """The hosts, the server and the scheduler of runs, which `open` begins; hosts load PyTorch meanwhile.

    Args:
        scenario: The scenario of the first run.
        places: The place of each host.

    Attributes:
        server: The server.
        hosts: The hosts, by number.
        scheduler: The scheduler.
        groups: The placement groups that hold the hosts.
    """

    def __init__(self, scenario: Scenario, places: Sequence[PlacementGroupSchedulingStrategy]) -> None:
        name = f"rayfl-server-{uuid.uuid4().hex}"
        # first, since they import the most: they get the processes that Ray has already started
        self.hosts = [
            ActorWorker(_host_options(scenario, place).remote(index, name), f"worker {index}", HostActor)
            for index, place in enumerate(places)
        ]
        self.server = ActorWorker(_beside_driver(ServerActor, name=name).remote(), "the server", ServerActor)
        self.groups = {place.placement_group for place in places}
        self._backend = RayBackend(self.hosts, self.server, nodes_of(places))
        scheduler = _beside_driver(SchedulerActor, [DURING_RUN], name=scheduler_name(name)).remote()
        self.scheduler = ActorWorker(scheduler, "the scheduler", SchedulerActor)

    @property
    def all(self) -> list[ActorWorker]:
        """All actors: hosts, server and scheduler."""
        return [*self.hosts, self.server, self.scheduler]

    def open(self, run: RunPlan) -> None:
        """Begins a run on all actors; discards everything from the previous one."""
        code, shared, whole = _sent(run)
        opened = self.server.call("open", code, shared, whole)
        begun = [host.call("open", opened) for host in self.hosts]  # after the server, which a host asks for the run
        begun.append(self.scheduler.call("open", code, shared, self._backend))
        # Ray lets later calls overtake one whose arguments are still awaited, and they would find the previous run
        ray.wait(begun, num_returns=len(begun))

    def end(self) -> None:
        for worker in (self.scheduler, *self.hosts, self.server):
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
            as_many_as_fit: Start fewer hosts than requested if the cluster no longer has room for all of them.

        Returns:
            The actors, and whether an earlier run used them.

        Raises:
            ResourceError: See `reserved`.
        """
        serve, most = _served(run.scenario), most_hosts(run.phases)
        code = {module: digest for module, digest in run.code.items() if module != "__main__"}
        changed = any(self._imported.get(module, digest) != digest for module, digest in code.items())
        if self._actors is not None and self._serve == serve and self._are_as_many(most) and not changed:
            served, self._has_served = self._has_served, True
            self._imported |= code
            self._actors.open(run)
            return self._actors, served
        self.discard()
        try:
            resources = run.scenario.resources
            if as_many_as_fit and resources.hosts != "auto":
                most, resources = resources.hosts, resources.model_copy(update={"hosts": "auto"})
            places = self._stack.enter_context(reserved(resources, most, waiting))
            self._begin(run.scenario, most, places)
            assert self._actors is not None
            self._imported, self._has_served = code, True
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
            self._begin(scenario, ANY, self._stack.enter_context(reserved(scenario.resources, ANY)))
        except (RayflError, RayError):
            self.discard()

    def _begin(self, scenario: Scenario, most: int, places: Sequence[PlacementGroupSchedulingStrategy]) -> None:
        self._actors, self._serve, self._most = Actors(scenario, places), _served(scenario), most
        self._imported, self._has_served = {}, False
        self._stack.callback(self._actors.end)

    def _are_as_many(self, most: int) -> bool:
        """Whether a run that can use `most` hosts would start as many as are running now."""
        hosts = len(self._actors.hosts) if self._actors else 0
        return most in (hosts, self._most) or hosts < min(self._most, most)  # the cluster had no room for more

    def discard(self) -> None:
        """Ends the actors and releases their reserved resources."""
        self._actors = None
        self._stack.close()


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
    return UserCode.of(run.scenario), ray.put(run.without_data()), [ray.put(run)]


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
