"""The public names for writing your own schedule; see `examples/own_schedule.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.config.asynchronous import AsynchronousPhase, Staleness
    from rayfl.config.base_phase import BasePhase
    from rayfl.config.cohort import Cohort
    from rayfl.engine.assignment import at_home, longest_first, segments
    from rayfl.engine.calls import Call
    from rayfl.engine.schedules.asynchronous import Asynchronous
    from rayfl.engine.schedules.schedule import Schedule, ScheduleContext, SubmittedRound
    from rayfl.engine.updates_on_hosts import Submitted
    from rayfl.planning.events import Event
    from rayfl.planning.participation import Everybody, Participant, Participation
    from rayfl.planning.phase_plan import PhasePlan
    from rayfl.planning.round_index import RoundIndex
    from rayfl.planning.totals import Simulated
    from rayfl.planning.virtual_clock import VirtualClock

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
    "AsynchronousPhase": "rayfl.config.asynchronous",
    "BasePhase": "rayfl.config.base_phase",
    "Call": "rayfl.engine.calls",
    "Cohort": "rayfl.config.cohort",
    "Event": "rayfl.planning.events",
    "Everybody": "rayfl.planning.participation",
    "Participant": "rayfl.planning.participation",
    "Participation": "rayfl.planning.participation",
    "PhasePlan": "rayfl.planning.phase_plan",
    "RoundIndex": "rayfl.planning.round_index",
    "Schedule": "rayfl.engine.schedules.schedule",
    "ScheduleContext": "rayfl.engine.schedules.schedule",
    "Simulated": "rayfl.planning.totals",
    "Staleness": "rayfl.config.asynchronous",
    "Submitted": "rayfl.engine.updates_on_hosts",
    "SubmittedRound": "rayfl.engine.schedules.schedule",
    "VirtualClock": "rayfl.planning.virtual_clock",
    "at_home": "rayfl.engine.assignment",
    "longest_first": "rayfl.engine.assignment",
    "segments": "rayfl.engine.assignment",
}

__getattr__ = lazy_names(__name__, _HOMES)
