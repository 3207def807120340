"""Whether tasks, which may compare several views of a batch, fit `data.views` and `data.augment`."""

from __future__ import annotations

from rayfl.config.data import Data
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks.building import build_task, task_key
from rayfl.tasks.task import Task


def check_views(scenario: Scenario) -> None:
    """Checks what tasks need of augmentations: several views come from `data.views`, or else from `data.augment`.

    Raises:
        ScenarioError: There are more or fewer views than a task compares, views that no task compares, augmentations
            that no batch has, or views without augmentations.
    """
    data, given = scenario.data, len(scenario.data.views)
    tasks = [build_task(scenario, phase) for phase in scenario.phases]
    for phase, task in zip(scenario.phases, tasks, strict=True):
        if given and task.views > 1:
            _check_number(task, given)
        _check_augmented(task, data, task_key(phase))
    if given and all(task.views == 1 for task in tasks):
        raise ScenarioError(
            f"data.views: there are {given}, and task '{tasks[0].name}' compares none; use data.augment"
        )
    if given and data.augment and all(task.views > 1 for task in tasks):
        raise ScenarioError(
            "data.views: gives each view its own augmentations, and data.augment all the same; leave one of them"
        )


def _check_number(task: Task, given: int) -> None:
    if given != task.views:
        raise ScenarioError(
            f"data.views: there are {given}, and task '{task.name}' compares {task.views}; give as many"
        )
    if task.evaluation_views > given:
        raise ScenarioError(
            f"data.views: there are {given}, and the evaluation of task '{task.name}' reads {task.evaluation_views}; "
            "use data.augment for all of them"
        )


def _check_augmented(task: Task, data: Data, where: str) -> None:
    of_views = data.views if task.views > 1 else ()
    if any(view.augment for view in of_views) if of_views else data.augment:
        return
    if task.views > 1:
        raise ScenarioError(
            f"{where}: '{task.name}' compares {task.views} augmented views of every batch, and without data.augment "
            "they are the same; name augmentations"
        )
    if task.evaluation_views:
        raise ScenarioError(
            f"{where}: '{task.name}' is evaluated on augmented views of test samples, and without data.augment they "
            "are the samples themselves; name augmentations"
        )
