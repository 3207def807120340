"""Hosts and server on Ray write their states to a folder, and others go on from there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.backends.ray.workers import RayBackend
from rayfl.engine.events import RoundDone
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import FolderStore
from rayfl.errors import RayflError
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import prepared, run_on_hosts, snapshot_of

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

LOCAL = {"epochs": 1, "batch_size": 4, "lr": 0.1}
SCENARIO: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": "tests.algorithms.scene:TanhNet",
    "phases": [
        {"name": "scaffold", "rounds": 2, "cohort": 5, "algorithm": "scaffold", "local": LOCAL},
        {"name": "buffered", "schedule": "buffered", "rounds": 3, "concurrency": 5, "buffer": 2, "local": LOCAL},
    ],
    "participation": {"steps_per_s": {"lognormal": [1.0, 1.0]}},
    "evaluation": {"every": 2},
}


@contextmanager
def scheduler_on(hosts: int) -> Iterator[Scheduler]:
    """A scheduler in this process, with hosts and server on Ray."""
    job = prepared(**SCENARIO, resources={"hosts": hosts})
    with ray_session(job, None, RayLog(Path(os.devnull))) as session:
        actors = session._attempt.actors  # type: ignore[attr-defined]
        backend = RayBackend(actors.hosts, actors.server)
        yield Scheduler(job, backend)


@pytest.mark.parametrize("round", [1, 4], ids=["client states", "updates in flight"])
def test_a_run_goes_on_on_other_hosts_with_the_bits_of_one_process(round: int, tmp_path: Path) -> None:
    job = prepared(**SCENARIO)
    whole, _ = run_on_hosts(job, 1)
    with scheduler_on(hosts=2) as scheduler:
        next(event for event in scheduler.run() if isinstance(event, RoundDone) and event.round == round)
        snapshot = snapshot_of(scheduler, FolderStore(tmp_path)).to_json()
        with pytest.raises(RayflError, match="use a FolderStore with workers in other processes"):
            snapshot_of(scheduler, MemoryStore())
    with scheduler_on(hosts=1) as scheduler:
        scheduler.restore(RunSnapshot.from_json(snapshot), FolderStore(tmp_path))
        list(scheduler.run())
        backend = scheduler._backend
        _, model = backend.get(backend.server.call("committed", None))
        assert np.array_equal(model, whole)
