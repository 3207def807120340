"""Runs a scenario on its own Ray cluster and collects its rounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.config.loader import load_scenario
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.flat import FlatModel
from rayfl.runs.preparation import prepare

NEVER = 1_000_000
"""For evaluation.every: only the last round of a phase is evaluated, after the timed rounds."""


def job_of(tables: dict[str, Any]) -> tuple[RunPlan, FlatModel]:
    """Prepares the tables of a scenario; data comes from `tools.bench.data`, not from files."""
    return prepare(load_scenario(tables), Path("no-files"))


def run_rounds(job: RunPlan, after: Callable[[RoundDone], None] = lambda _: None) -> list[RoundDone]:
    """Runs a job on a Ray cluster that is started and stopped for it, and returns all committed rounds.

    Args:
        job: The job.
        after: Called after each round, while the cluster is running.
    """
    rounds = []
    with ray_session(job, None, RayLog(Path(os.devnull))) as session:
        for event in session.events():
            if isinstance(event, RoundDone):
                rounds.append(event)
                after(event)
    return rounds
