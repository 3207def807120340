"""Backend `ray`: hosts, server and scheduler as actors on a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rayfl.cluster.connection import attached
from rayfl.cluster.early_connection import EarlyConnection
from rayfl.cluster.failures import as_rayfl_error, take_ray_text
from rayfl.cluster.host_actor import HostActor
from rayfl.cluster.main_objects import pack_main_objects
from rayfl.cluster.placement import reserved
from rayfl.cluster.ray_log import RayLog, ray_text_in
from rayfl.cluster.repeating import repeatable, resources_of
from rayfl.cluster.scheduler_actor import SchedulerActor
from rayfl.cluster.server_actor import ServerActor
from rayfl.cluster.workers import ActorWorker, RayBackend, names_of
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import most_hosts
from rayfl.engine.job import Job, Session
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.state_store import StateStore
from rayfl.interruption import handlers_installed_again
from rayfl.planning.events import Event, RoundDone, RoundSettled
from rayfl.planning.phase_plan import plan_phases


class RaySession:
    """A run on a cluster.

    Attributes:
        hosts: What each host says of itself, once the session has started.
        dashboard: The address of Ray's dashboard, where the session has started one.
    """

    dashboard: str | None = None

    def __init__(self, job: Job, places: Sequence[PlacementGroupSchedulingStrategy], log: RayLog) -> None:
        scenario = job.scenario
        self._log = log
        main_objects = pack_main_objects(scenario)
        server_name = f"rayfl-server-{uuid.uuid4().hex}"
        workloads = ray.put((job.workloads, job.protection))  # one copy per node, which its hosts map read-only
        self._server = ActorWorker(
            _beside_driver(ServerActor, name=server_name).remote(
                scenario, job.initial_models, job.num_clients, [workloads], main_objects, job.protection
            ),
            "the server",
        )
        self._hosts = [
            ActorWorker(
                _host_options(scenario, place).remote(index, scenario, server_name, main_objects),
                f"host {index}",
            )
            for index, place in enumerate(places)
        ]
        self._scheduler = ActorWorker(
            _beside_driver(SchedulerActor).remote(
                scenario,
                RayBackend(self._hosts, self._server),
                job.populations,
                job.settles,
                main_objects,
            ),
            "the scheduler",
        )
        self.hosts: list[dict[str, str]] = []
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
                return

    def stop(self) -> None:
        self._get(self._scheduler.call("stop"))

    def snapshot(self, store: StateStore) -> RunSnapshot:
        # between two calls of `run`, since the scheduler's actor does one thing at a time
        snapshot: RunSnapshot = self._get(self._scheduler.call("snapshot", store))
        return snapshot

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        self._get(self._scheduler.call("restore", snapshot, store))

    def committed(self) -> tuple[int, np.ndarray]:
        round, model = self._get(self._server.call("committed", self._last_reported))
        return round, np.array(model)  # Ray's arrays are views of shared memory that lives no longer than the session

    def close(self) -> None:
        for worker in (self._scheduler, *self._hosts, self._server):
            ray.kill(worker.actor)

    def _get(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except RayError as error:
            told = as_rayfl_error(error, names_of([*self._hosts, self._server, self._scheduler]))
            self._log.write(take_ray_text(told))
            raise told from None


def _beside_driver(actor: type, **options: Any) -> Any:
    """An actor on the driver's node, whose loss ends the run anyway: the server's state must not die with another.

    The server and the scheduler mostly wait for the hosts, so they take no CPU from them.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(actor).options(num_cpus=0, scheduling_strategy=here, **options)


def _host_options(scenario: Scenario, place: PlacementGroupSchedulingStrategy) -> Any:
    resources = resources_of(scenario)
    return ray.remote(HostActor).options(
        num_cpus=resources.cpus_per_host,
        num_gpus=resources.gpus_per_host,
        max_restarts=resources.restarts,
        # Unbounded, as Ray spends retries on a node that it has yet to declare dead. What goes wrong again and again
        # ends with the restarts.
        max_task_retries=-1 if repeatable(scenario) else 0,
        allow_out_of_order_execution=True,  # an evaluation need not wait behind a relay's hop that waits for its model
        scheduling_strategy=place,
    )


@contextmanager
def ray_session(
    job: Job,
    address: str | None,
    log: RayLog,
    waiting: Callable[[str], None] | None = None,
    early: EarlyConnection | None = None,
) -> Iterator[Session]:
    """Runs on the cluster at `address` (see `attached`), or on that of a connection that is being made.

    Args:
        job: What to run.
        address: The cluster's, or None.
        log: Receives what Ray itself has to say.
        waiting: See `reserved`.
        early: The connection to `address`, where it was begun before.

    Raises:
        ResourceError: No cluster answers, or the hosts do not fit it or cannot start.
    """
    with ExitStack() as stack:
        if early is None:
            url = stack.enter_context(attached(address, dashboard=job.scenario.resources.dashboard))
            stack.enter_context(ray_text_in(log))
        else:
            url, held = early.wait()
            handlers_installed_again()
            held.begin(log.path)
        hosts = most_hosts(plan_phases(job.scenario), max(job.num_clients))
        places = stack.enter_context(reserved(job.scenario.resources, hosts, waiting))
        try:
            session = RaySession(job, places, log)
            session.dashboard = url
            stack.callback(session.close)
            session.start()
        except RayError as error:
            told = as_rayfl_error(error, {})
            log.write(take_ray_text(told))
            raise told from None
        yield session
