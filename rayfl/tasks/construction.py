"""Builds the task that a scenario names. Loads no PyTorch."""

from __future__ import annotations

from rayfl.config.component import Choice
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.tasks import tasks
from rayfl.tasks.task import Task

TASKS = Choice(tasks, Task)


def build_task(scenario: Scenario, phase: Phase | None = None) -> Task:
    """Builds the task of a phase; without a phase, the scenario's.

    Raises:
        ScenarioError: The name is unknown or is not a task, or an option is unknown or out of range.
    """
    own = None if phase is None else phase.task
    built: Task = TASKS.build(own or scenario.task, task_key(phase))
    return built


def task_key(phase: Phase | None) -> str:
    """Returns the key that names a phase's task."""
    return "task" if phase is None or phase.task is None else f"phases.{phase.name}.task"
