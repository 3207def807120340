"""How a phase's rounds run on the hosts: one file per schedule; a user's own derives from `Schedule`."""

from rayfl.config.cohort import Cohort
from rayfl.config.phase import BasePhase
from rayfl.engine.assignment import at_home, longest_first, segments
from rayfl.engine.calls import Call
from rayfl.engine.schedules.schedule import Schedule, ScheduleContext, SubmittedRound
from rayfl.planning.events import Event
from rayfl.planning.participation import Everybody, Participant, Participation
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex

__all__ = [
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
    "SubmittedRound",
    "at_home",
    "longest_first",
    "segments",
]
