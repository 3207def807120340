"""Backend `ray`: hosts, server and scheduler as actors on a cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rayfl.cluster.connection import attached
from rayfl.cluster.host_actor import HostActor
from rayfl.cluster.preflight import plan_hosts
from rayfl.cluster.scheduler_actor import SchedulerActor
from rayfl.cluster.server_actor import ServerActor
from rayfl.cluster.workers import ActorWorker, RayBackend, as_rayfl_error
from rayfl.config.execution import Resources
from rayfl.engine.evaluation import cut
from rayfl.engine.events import Event
from rayfl.engine.session import Job, Session
from rayfl.errors import ResourceError

PLACEMENT_TIMEOUT_S = 30.0


class RaySession:
    def __init__(self, job: Job, group: PlacementGroup, hosts: int) -> None:
        resources = job.scenario.resources
        # the server and the scheduler mostly wait for the hosts: they take no CPU from them
        server_name = f"rayfl-server-{uuid.uuid4().hex}"
        server = ray.remote(ServerActor).options(num_cpus=0, name=server_name)
        store = ray.put(job.store)  # one copy per node, which its hosts map read-only
        self._server = ActorWorker(
            server.remote(job.scenario, job.initial, job.num_params, job.store.num_clients, [store]), "the server"
        )
        self._hosts = [
            ActorWorker(
                _host_options(resources, group, index).remote(index, job.scenario, server_name), f"host {index}"
            )
            for index in range(hosts)
        ]
        scheduler = ray.remote(SchedulerActor).options(num_cpus=0)
        self._scheduler = ActorWorker(
            scheduler.remote(
                job.scenario,
                RayBackend(self._hosts, self._server),
                job.store.train_shards.sizes,
                cut(job.scenario.evaluation, job.store),
            ),
            "the scheduler",
        )
        self.hosts: list[dict[str, str]] = []

    def start(self) -> None:
        """Waits for the hosts. Raises ResourceError where one cannot start."""
        self.hosts = [self._get(ref) for ref in [host.call("describe") for host in self._hosts]]

    def events(self) -> Iterator[Event]:
        stream: Any = self._scheduler.call("run", returns="streaming")
        for ref in stream:
            yield self._get(ref)

    def model(self) -> np.ndarray:
        # Ray's arrays are views of shared memory that lives no longer than the session
        return np.array(self._get(self._server.call("model")))

    def close(self) -> None:
        for worker in (self._scheduler, *self._hosts, self._server):
            ray.kill(worker.actor)

    def _get(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except RayError as error:
            raise as_rayfl_error(error, [*self._hosts, self._server, self._scheduler]) from None


def _host_options(resources: Resources, group: PlacementGroup, index: int) -> Any:
    return ray.remote(HostActor).options(
        num_cpus=resources.cpus_per_host,
        num_gpus=resources.gpus_per_host,
        max_restarts=resources.restarts,
        max_task_retries=resources.restarts,
        allow_out_of_order_execution=True,  # an evaluation need not wait behind a relay's leg that waits for its model
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
    )


@contextmanager
def ray_session(job: Job, address: str | None) -> Iterator[Session]:
    """Runs on the cluster at `address` (see `attached`).

    Raises:
        ResourceError: no cluster answers, or the hosts do not fit it.
    """
    with ExitStack() as stack:
        stack.enter_context(attached(address))
        hosts = plan_hosts(job.scenario.resources, job.store.num_clients)
        group = stack.enter_context(_reserved(job.scenario.resources, hosts))
        session = RaySession(job, group, hosts)
        stack.callback(session.close)
        session.start()
        yield session


@contextmanager
def _reserved(resources: Resources, hosts: int) -> Iterator[PlacementGroup]:
    """The hosts' CPUs and GPUs, spread over the nodes."""
    bundle = {"CPU": resources.cpus_per_host, "GPU": resources.gpus_per_host}
    bundle = {kind: amount for kind, amount in bundle.items() if amount}
    group = placement_group([bundle] * hosts, strategy="SPREAD")
    try:
        ray.get(group.ready(), timeout=PLACEMENT_TIMEOUT_S)
    except GetTimeoutError:
        remove_placement_group(group)
        raise ResourceError(
            f"the cluster did not free {hosts} times {bundle} within {PLACEMENT_TIMEOUT_S:g} s: another program may "
            "have taken them meanwhile; see `ray status`"
        ) from None
    try:
        yield group
    finally:
        remove_placement_group(group)
        _wait_until_freed(group)


def _wait_until_freed(group: PlacementGroup) -> None:
    """Ray gives reserved resources back a moment later; a run that follows at once must find them free."""
    deadline = time.monotonic() + PLACEMENT_TIMEOUT_S
    while time.monotonic() < deadline and any(group.id.hex() in kind for kind in ray.available_resources()):
        time.sleep(0.1)
