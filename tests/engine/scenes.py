"""Small scenarios, and ways to run them, for the tests of the engine and of its backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.backends.inline import InlineBackend
from rayfl.config.scenario import Scenario
from rayfl.engine.events import Evaluated, Event, RoundDone, SnapshotTaken
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.state.segments import StateSegments
from rayfl.engine.state.snapshots import RunSnapshot, Snapshotting
from rayfl.engine.state.state_store import StateStore
from rayfl.models.tensors import split
from rayfl.runs.preparation import prepare
from tests.engine.memory_store import MemoryStore

PRETRAIN = {"name": "cyclic", "schedule": "relay", "rounds": 3, "cohort": 4, "local": {"steps": 3, "batch_size": 8}}
FEDERATED: dict[str, Any] = {
    "name": "federated",
    "rounds": 3,
    "cohort": 5,
    "local": {"epochs": 2, "batch_size": 16, "momentum": 0.5},
}

TINY: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet"},
}
"""Twelve clients with points in four dimensions and three dense layers, for what does not depend on images."""


def defined(score: float | None) -> float:
    """A score that is known to be defined."""
    assert score is not None
    return score


def tables(**changes: Any) -> dict[str, Any]:
    """Generated handwriting, 8 writers; a network with dropout; flips and crops; a relay, then FedAvg."""
    return {
        "name": "scene",
        "seed": 7,
        "data": {"name": "handwriting", "clients": 8, "augment": ["flip", {"name": "crop", "padding": 2}]},
        "model": {"name": "cnn_fashion_mnist"},
        "phases": [PRETRAIN, FEDERATED],
        "evaluation": {"every": 2},
        "resources": {"relay": "spread"},
    } | changes


def prepared(**changes: Any) -> RunPlan:
    job, _ = prepare(Scenario.from_tables(tables(**changes)), Path("no-data-here"))
    return job


def kept_by_clients(snapshot: RunSnapshot, store: StateStore) -> dict[int, dict[str, np.ndarray]]:
    """What clients keep, by client, and then by scope and name: `phase/control`."""
    kept: dict[int, dict[str, np.ndarray]] = {}
    for client, scope, _, arrays in StateSegments().read(snapshot.clients, everyone, store):
        kept.setdefault(client, {}).update({f"{scope}/{name}": array for name, array in arrays.items()})
    return kept


def everyone(clients: np.ndarray) -> np.ndarray:
    """That all clients belong to a host."""
    return np.ones(len(clients), bool)


def cast(job: RunPlan, hosts: int, settles: bool = False) -> tuple[Scheduler, Server]:
    """A scheduler on several hosts and a server, all of them new and in this process."""
    server = Server(job)
    workers: Sequence[Host] = [Host(index, job) for index in range(hosts)]
    backend = InlineBackend(workers, server)
    return Scheduler(replace(job, settles=settles), backend), server


def snapshot_of(scheduler: Scheduler, store: StateStore) -> RunSnapshot:
    """The state after the last round that was reported as done, through JSON and back; written at once."""
    backend = scheduler._backend
    snapshots = Snapshotting(scheduler._scenario, backend, backend.hosts, scheduler._watchdog, store)
    scheduler._snapshot(snapshots)
    (taken,) = snapshots.finish()
    assert isinstance(taken, SnapshotTaken), taken
    return RunSnapshot.from_json(taken.snapshot)


def run_on_hosts(job: RunPlan, hosts: int) -> tuple[np.ndarray, list[Event]]:
    """The final model and the events of a run on several hosts, all of them in this process."""
    scheduler, server = cast(job, hosts)
    events = list(scheduler.run())
    return split(server.committed()[1])[0], events


def snapshot_after(
    job: RunPlan, round: int, hosts: int, store: StateStore | None = None
) -> tuple[RunSnapshot, StateStore]:
    """The state after a round of a run on several hosts, and the store that it is written to, by default in memory."""
    store = store or MemoryStore()
    scheduler, _ = cast(job, hosts)
    next(event for event in scheduler.run() if isinstance(event, RoundDone) and event.round == round)
    return snapshot_of(scheduler, store), store


def continued(job: RunPlan, snapshot: RunSnapshot, store: StateStore, hosts: int) -> tuple[np.ndarray, list[Event]]:
    """The final model and the later events of a run that goes on from a snapshot on several hosts."""
    scheduler, server = cast(job, hosts)
    scheduler.restore(snapshot, store)
    events = list(scheduler.run())
    return split(server.committed()[1])[0], events


def without_clock(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events as plain values, but for the seconds."""
    return [{key: value for key, value in vars(event).items() if key != "seconds"} for event in events]


def by_kind(events: Sequence[Event]) -> list[list[dict[str, Any]]]:
    """Rounds, then scores: evaluations overlap with later rounds, so the order of all events may differ."""
    return [without_clock([event for event in events if isinstance(event, kind)]) for kind in (RoundDone, Evaluated)]
