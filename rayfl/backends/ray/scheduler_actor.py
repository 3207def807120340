"""The scheduler as an actor: streams events to the driver and reports figures to Ray's metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import ray
from ray.util.metrics import Counter, Gauge

from rayfl.backends.ray.failures import Started
from rayfl.backends.ray.user_code import UserCode
from rayfl.backends.ray.workers import ActorWorker, RayBackend
from rayfl.engine.events import Evaluated, Event, RoundDone, RoundSettled
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import StateStore
from rayfl.engine.totals import Traffic
from rayfl.privacy.release_ledger import Charges

DURING_RUN = "beside"
"""The concurrency group of methods that may be called during `run`; all others wait for it."""


class SchedulerActor:
    """Runs the scheduler in a separate process, so that models never pass through the driver."""

    def __init__(self) -> None:
        self._metrics = _RayMetrics()

    def open(self, code: UserCode, run: RunPlan, backend: RayBackend) -> None:
        """Begins a run; discards everything from the previous one.

        Args:
            code: The user's code.
            run: The run's plan without data.
            backend: Hosts and server.
        """

        self._backend = backend

        def make() -> Scheduler:
            code.make_importable()
            return Scheduler(run, backend)

        self._scheduler = Started("the scheduler", make)
        self._metrics.begin(run.scenario.name)
        self._events: Iterator[Event] | None = None

    def run(self) -> Iterator[Event]:
        """Events up to the next `RoundSettled` or the end; the next call continues after them."""
        if self._events is None:
            self._events = self._scheduler.get().run()
        for event in self._events:
            self._metrics.update(event)
            yield event
            if isinstance(event, RoundSettled):
                return

    def checkpoint_to(self, store: StateStore) -> None:
        self._scheduler.get().checkpoint_to(store)

    def charge_to(self, charges: Charges) -> None:
        self._scheduler.get().charge_to(charges)

    @ray.method(concurrency_group=DURING_RUN)
    def stop(self, round: int) -> None:
        self._scheduler.get().stop(round)

    @ray.method(concurrency_group=DURING_RUN)
    def interrupt(self) -> None:
        self._scheduler.get().interrupt()

    @ray.method(concurrency_group=DURING_RUN)
    def join(self, hosts: Sequence[ActorWorker], nodes: Sequence[str]) -> None:
        self._scheduler.get().join(hosts, nodes)

    @ray.method(concurrency_group=DURING_RUN)
    def beat(self, host: int, batches: int) -> None:
        """Notes how many batches a host has made; hosts report it every few seconds."""
        self._backend.beats[host] = self._backend.beats.get(host, 0) + batches

    @ray.method(concurrency_group=DURING_RUN)
    def answer(self) -> None:
        """Returns at once, so that the driver can tell a process that works from one that is stopped."""

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        self._scheduler.get().restore(snapshot, store)
        self._metrics.restore(snapshot.traffic)


class _RayMetrics:
    """Metrics for Prometheus and Ray's dashboard, named `ray_rayfl_...`, by scenario and phase."""

    def __init__(self) -> None:
        tags = ("scenario", "phase")
        self._rounds = Counter("rayfl_rounds", "Committed rounds", tags)
        self._updates = Counter("rayfl_client_updates", "Client updates: one client's local training in a round", tags)
        self._steps = Counter("rayfl_client_steps", "Local steps", tags)
        self._bytes = Counter("rayfl_protocol_bytes", "Bytes that the protocol would have moved", tags)
        self._train_loss = Gauge("rayfl_train_loss", "Mean training loss of the last round", tags)
        self._scores: dict[str, Gauge] = {}

    def begin(self, scenario: str) -> None:
        """Starts counting for a run."""
        self._scenario, self._traffic = scenario, Traffic()

    def restore(self, traffic: Traffic) -> None:
        """Counts only the traffic after a snapshot, as the other counters do."""
        self._traffic = traffic

    def update(self, event: Event) -> None:
        tags = {"scenario": self._scenario, "phase": event.phase}
        if isinstance(event, RoundDone):
            self._rounds.inc(1, tags)
            _increase(self._updates, event.client_updates, tags)
            _increase(self._steps, event.steps, tags)
            _increase(self._bytes, event.traffic.bytes - self._traffic.bytes, tags)
            self._train_loss.set(event.train_loss, tags)
            self._traffic = event.traffic
        elif isinstance(event, Evaluated):
            for name, value in event.scores.items():
                if name not in self._scores:
                    self._scores[name] = Gauge(f"rayfl_{name}", f"{name} of the last evaluated round", (*tags,))
                self._scores[name].set(math.nan if value is None else value, tags)


def _increase(counter: Counter, by: float, tags: dict[str, str]) -> None:
    """Skips an increase by 0, which Ray's counters reject; a round of one gradient per client has no steps."""
    if by:
        counter.inc(by, tags)
