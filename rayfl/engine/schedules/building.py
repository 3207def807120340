"""Resolves the schedule that a phase names."""

from __future__ import annotations

from inspect import isabstract

from rayfl.config.base_phase import BasePhase
from rayfl.config.schedules import schedules
from rayfl.engine.schedules.schedule import Schedule
from rayfl.errors import ScenarioError


def schedule_of(phase: BasePhase) -> type[Schedule]:
    """Returns the schedule class of a phase.

    Raises:
        ScenarioError: The name is not that of a schedule.
    """
    kind, where = schedules.resolve(phase.schedule), f"phases.{phase.name}.schedule"
    if not (isinstance(kind, type) and issubclass(kind, Schedule)):
        raise ScenarioError(f"{where}: '{phase.schedule}' is not a class derived from rayfl.schedules.Schedule")
    if isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise ScenarioError(f"{where}: '{phase.schedule}' must define its base class's abstract methods: {missing}")
    return kind
