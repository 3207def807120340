"""Checks `data.views` and `data.augment` against tasks, which may compare several views of a batch."""

from __future__ import annotations

from rayfl.config.data import Data
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks.building import build_task, task_key
from rayfl.tasks.task import Task


def check_views(scenario: Scenario) -> None:
    """Checks that the data provides the augmented views that tasks compare, from `data.views` or `data.augment`.

    Raises:
        ScenarioError: The number of views differs from a task's, no task uses the views or augmentations, or a task's
            views have no augmentations.
    """
    data, given = scenario.data, len(scenario.data.views)
    tasks = [build_task(scenario, phase) for phase in scenario.phases]
    for phase, task in zip(scenario.phases, tasks, strict=True):
        if given and task.views > 1:
            _check_number(task, given)
        _check_augmented(task, data, task_key(phase))
    if given and all(task.views == 1 for task in tasks):
        raise ScenarioError(
            f"data.views: there are {given}, but task '{tasks[0].name}' does not use views; use data.augment"
        )
    if given and data.augment and all(task.views > 1 for task in tasks):
        raise ScenarioError(
            "data.views: gives each view its own augmentations, but data.augment gives all the same; remove one of them"
        )


def _check_number(task: Task, given: int) -> None:
    if given != task.views:
        raise ScenarioError(
            f"data.views: there are {given}, but task '{task.name}' compares {task.views}; define {task.views}"
        )
    if task.evaluation_views > given:
        raise ScenarioError(
            f"data.views: there are {given}, but the evaluation of task '{task.name}' reads {task.evaluation_views}; "
            "use data.augment for all of them"
        )


def _check_augmented(task: Task, data: Data, where: str) -> None:
    of_views = data.views if task.views > 1 else ()
    if any(view.augment for view in of_views) if of_views else data.augment:
        return
    if task.views > 1:
        raise ScenarioError(
            f"{where}: '{task.name}' compares {task.views} augmented views of every batch, which are identical without "
            "data.augment; set augmentations"
        )
    if task.evaluation_views:
        raise ScenarioError(
            f"{where}: '{task.name}' is evaluated on augmented views of test samples, which are the unchanged samples "
            "without data.augment; set augmentations"
        )
