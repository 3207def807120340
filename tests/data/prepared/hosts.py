"""Runs on hosts that receive the plan as worker processes do, and read its data themselves."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

from rayfl.backends.inline import InlineBackend
from rayfl.engine.events import RoundDone
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.models.tensors import split
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import snapshot_of, without_clock


def ran(job: RunPlan, hosts: int, resumed: bool = False) -> tuple[bytes, list[dict[str, Any]]]:
    """The model and the events of a run on hosts that received it as worker processes do."""

    def start(number: int) -> tuple[Scheduler, Server]:
        server = Server(job)
        given = [replace(job, workloads=pickle.loads(pickle.dumps(job.workloads))) for _ in range(number)]  # noqa: S301
        return Scheduler(job, InlineBackend([*map(Host, range(number), given)], server)), server

    scheduler, server = start(hosts)
    events = scheduler.run()
    if resumed:
        store = MemoryStore()
        next(event for event in events if isinstance(event, RoundDone))
        snapshot = snapshot_of(scheduler, store)
        scheduler, server = start(hosts + 1)
        scheduler.restore(snapshot, store)
        events = scheduler.run()
    told = without_clock(list(events))
    return split(server.committed()[1])[0].tobytes(), told


def scores(events: list[dict[str, Any]]) -> list[Any]:
    return [event["scores"] for event in events if "scores" in event]
