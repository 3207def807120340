"""Builds the task that a scenario names. Loads no PyTorch."""

from __future__ import annotations

from rayfl.config.component import build_component
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks import tasks
from rayfl.tasks.task import Task


def build_task(scenario: Scenario, phase: Phase | None = None) -> Task:
    """Builds the task of a phase; without a phase, the scenario's.

    Raises:
        ScenarioError: The name is unknown or is not a task, or an option is unknown or out of range.
    """
    own = None if phase is None else phase.task
    try:
        built: Task = build_component(tasks, Task, own or scenario.task)
    except ScenarioError as error:
        raise ScenarioError(f"{task_key(phase)}: {error}") from None
    return built


def task_key(phase: Phase | None) -> str:
    """Returns the key that names a phase's task."""
    return "task" if phase is None or phase.task is None else f"phases.{phase.name}.task"
