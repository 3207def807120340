"""From the task that a scenario names to the object itself. Loads no PyTorch."""

from __future__ import annotations

from rayfl.component import build_component
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks import tasks
from rayfl.tasks.task import Task


def build_task(scenario: Scenario, phase: Phase | None = None) -> Task:
    """The task of a phase; without one, the scenario's.

    Raises:
        ScenarioError: An unknown name, something that is no task, or an option that is unknown or out of range.
    """
    own = None if phase is None else phase.task
    try:
        built: Task = build_component(tasks, Task, own or scenario.task)
    except ScenarioError as error:
        raise ScenarioError(f"{task_key(phase)}: {error}") from None
    return built


def task_key(phase: Phase | None) -> str:
    """The key that says what a phase learns."""
    return "task" if phase is None or phase.task is None else f"phases.{phase.name}.task"
