"""The schedules by name, and the one that a phase names."""

from __future__ import annotations

from inspect import isabstract

from rayfl.config.base_phase import BasePhase
from rayfl.engine.schedules.schedule import Schedule
from rayfl.errors import ScenarioError
from rayfl.registry import Registry

schedules = Registry(
    "schedule",
    {
        "parallel": "rayfl.engine.schedules.parallel:Parallel",
        "relay": "rayfl.engine.schedules.relay:Relay",
        "buffered": "rayfl.engine.schedules.buffered:Buffered",
        "asynchronous": "rayfl.engine.schedules.fully_asynchronous:FullyAsynchronous",
        "local": "rayfl.engine.schedules.alone:Alone",
        "central": "rayfl.engine.schedules.central:Central",
    },
)


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
