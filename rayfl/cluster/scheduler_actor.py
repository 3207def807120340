"""The scheduler as an actor: its events stream to the driver, and its figures go to Ray's metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from ray.util.metrics import Counter, Gauge

from rayfl.cluster.workers import RayBackend
from rayfl.config.scenario import Scenario
from rayfl.engine.evaluation import Slice
from rayfl.engine.events import Evaluated, Event, RoundDone, Traffic
from rayfl.engine.scheduler import Scheduler


class SchedulerActor:
    """Runs the scheduler beside the hosts, so that the driver's machine is on no model's way."""

    def __init__(self, scenario: Scenario, backend: RayBackend, sizes: np.ndarray, slices: Sequence[Slice]) -> None:
        self._scheduler = Scheduler(scenario, backend, sizes, slices)
        self._metrics = _Metrics(scenario.name)

    def run(self) -> Iterator[Event]:
        for event in self._scheduler.run():
            self._metrics.update(event)
            yield event


class _Metrics:
    """Seen by Prometheus and on Ray's dashboard as `ray_rayfl_...`, by scenario and phase."""

    def __init__(self, scenario: str) -> None:
        tags = ("scenario", "phase")
        self._scenario = scenario
        self._traffic = Traffic()
        self._rounds = Counter("rayfl_rounds", "Committed rounds", tags)
        self._visits = Counter("rayfl_visits", "Visits: one client's local training in a round", tags)
        self._steps = Counter("rayfl_client_steps", "Local steps", tags)
        self._bytes = Counter("rayfl_protocol_bytes", "Bytes that the protocol would have moved", tags)
        self._train_loss = Gauge("rayfl_train_loss", "Mean training loss of the last round", tags)
        self._test_loss = Gauge("rayfl_test_loss", "Test loss of the last evaluated round", tags)
        self._accuracy = Gauge("rayfl_test_accuracy", "Test accuracy of the last evaluated round, 0 to 1", tags)

    def update(self, event: Event) -> None:
        tags = {"scenario": self._scenario, "phase": event.phase}
        if isinstance(event, RoundDone):
            self._rounds.inc(1, tags)
            self._visits.inc(event.visits, tags)
            self._steps.inc(event.steps, tags)
            self._bytes.inc(event.traffic.bytes - self._traffic.bytes, tags)
            self._train_loss.set(event.train_loss, tags)
            self._traffic = event.traffic
        elif isinstance(event, Evaluated):
            self._test_loss.set(event.loss, tags)
            self._accuracy.set(event.accuracy, tags)
