"""The public names for writing your own schedule; see `examples/own_schedule.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.config.base_phase import BasePhase
    from rayfl.config.cohort import Cohort
    from rayfl.config.phase import AsynchronousPhase, Staleness
    from rayfl.engine.assignment import Submitted, at_home, longest_first, segments
    from rayfl.engine.backend import Call
    from rayfl.engine.events import Event
    from rayfl.engine.plan.participation import Everybody, Participant, Participation, VirtualClock
    from rayfl.engine.plan.phase_plan import PhasePlan
    from rayfl.engine.plan.rounds import RoundIndex
    from rayfl.engine.schedules.asynchronous import Asynchronous
    from rayfl.engine.schedules.schedule import Schedule, ScheduleContext, SubmittedRound
    from rayfl.engine.totals import Simulated

__all__ = [
    "Asynchronous",
    "AsynchronousPhase",
    "BasePhase",
    "Call",
    "Cohort",
    "Event",
    "Everybody",
    "Participant",
    "Participation",
    "PhasePlan",
    "RoundIndex",
    "Schedule",
    "ScheduleContext",
    "Simulated",
    "Staleness",
    "Submitted",
    "SubmittedRound",
    "VirtualClock",
    "at_home",
    "longest_first",
    "segments",
]

_HOMES = {
    "Asynchronous": "rayfl.engine.schedules.asynchronous",
    "AsynchronousPhase": "rayfl.config.phase",
    "BasePhase": "rayfl.config.base_phase",
    "Call": "rayfl.engine.backend",
    "Cohort": "rayfl.config.cohort",
    "Event": "rayfl.engine.events",
    "Everybody": "rayfl.engine.plan.participation",
    "Participant": "rayfl.engine.plan.participation",
    "Participation": "rayfl.engine.plan.participation",
    "PhasePlan": "rayfl.engine.plan.phase_plan",
    "RoundIndex": "rayfl.engine.plan.rounds",
    "Schedule": "rayfl.engine.schedules.schedule",
    "ScheduleContext": "rayfl.engine.schedules.schedule",
    "Simulated": "rayfl.engine.totals",
    "Staleness": "rayfl.config.phase",
    "Submitted": "rayfl.engine.assignment",
    "SubmittedRound": "rayfl.engine.schedules.schedule",
    "VirtualClock": "rayfl.engine.plan.participation",
    "at_home": "rayfl.engine.assignment",
    "longest_first": "rayfl.engine.assignment",
    "segments": "rayfl.engine.assignment",
}

__getattr__ = lazy_names(__name__, _HOMES)
