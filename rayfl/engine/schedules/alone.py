"""Clients that train alone: parallel rounds in which nothing is sent."""

from __future__ import annotations

from rayfl.config.phase import LocalPhase
from rayfl.engine.schedules.parallel import Parallel


class Alone(Parallel):
    """Every client of the cohort goes on with its own model, wherever it is at home."""

    config = LocalPhase
    noun = "local phase"
