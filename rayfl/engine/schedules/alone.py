"""Local training without communication: parallel rounds in which no model is sent."""

from __future__ import annotations

from rayfl.config.phase import LocalPhase
from rayfl.engine.schedules.parallel import Parallel


class Alone(Parallel):
    """Every client of the cohort continues with its own model, on the worker that keeps it."""

    config = LocalPhase
    noun = "local phase"
