"""The public names for writing your own schedule; see `examples/own_schedule.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.config.base_phase import BasePhase as BasePhase
    from rayfl.config.cohort import Cohort as Cohort
    from rayfl.config.phase import AsynchronousPhase as AsynchronousPhase
    from rayfl.config.phase import Staleness as Staleness
    from rayfl.engine.assignment import Submitted as Submitted
    from rayfl.engine.assignment import at_home as at_home
    from rayfl.engine.assignment import longest_first as longest_first
    from rayfl.engine.assignment import segments as segments
    from rayfl.engine.backend import Call as Call
    from rayfl.engine.events import Event as Event
    from rayfl.engine.plan.participation import Everybody as Everybody
    from rayfl.engine.plan.participation import Participant as Participant
    from rayfl.engine.plan.participation import Participation as Participation
    from rayfl.engine.plan.participation import VirtualClock as VirtualClock
    from rayfl.engine.plan.phase_plan import PhasePlan as PhasePlan
    from rayfl.engine.plan.rounds import RoundIndex as RoundIndex
    from rayfl.engine.schedules.asynchronous import Asynchronous as Asynchronous
    from rayfl.engine.schedules.schedule import Schedule as Schedule
    from rayfl.engine.schedules.schedule import ScheduleContext as ScheduleContext
    from rayfl.engine.schedules.schedule import SubmittedRound as SubmittedRound
    from rayfl.engine.totals import Simulated as Simulated
else:
    __getattr__, __dir__ = lazy_names(__name__)
