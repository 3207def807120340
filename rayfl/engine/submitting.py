"""Submits a round through its schedule, and defines the exceptions that end a phase or run there."""

from __future__ import annotations

from collections.abc import Generator

from rayfl.engine.privacy_budget import Admission
from rayfl.engine.schedules.schedule import Schedule, SubmittedRound
from rayfl.errors import RayflError
from rayfl.planning.events import Event
from rayfl.planning.round_index import RoundIndex
from rayfl.user_code import report_as_theirs


class NobodyLeftError(Exception):
    """A round's cohort was drawn, but the privacy budget admits none of its clients."""

    def __init__(self, admission: Admission) -> None:
        super().__init__(admission)
        self.admission = admission


class StoppedError(Exception):
    """The run was stopped while a schedule waited for earlier rounds."""


def submitted(schedule: Schedule, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
    """Submits a round.

    Raises:
        RayflError: The user's own schedule raised.
        NobodyLeftError: As the schedule's `draw`.
        StoppedError: As the schedule's `settled`.
    """
    try:
        return (yield from schedule.submit(index))
    except (RayflError, NobodyLeftError, StoppedError):
        raise
    except Exception as error:
        if type(schedule).__module__.startswith("rayfl."):
            raise
        raise RayflError(report_as_theirs(error, f"schedule '{type(schedule).__name__}': submit()")) from None
