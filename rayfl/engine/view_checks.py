"""Whether tasks, which may compare several views of a batch, fit `data.views` and `data.augment`."""

from __future__ import annotations

from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks.building import build_task, task_key


def check_views(scenario: Scenario) -> None:
    """Checks what tasks need of augmentations: several views come from `data.views`, or else from `data.augment`.

    Raises:
        ScenarioError: There are more or fewer views than a task compares, views that no task compares, augmentations
            that no batch has, or views without augmentations.
    """
    data, given = scenario.data, len(scenario.data.views)
    tasks = [(task_key(phase), build_task(scenario, phase)) for phase in scenario.phases]
    for key, task in tasks:
        if given and task.views > 1 and given != task.views:
            raise ScenarioError(
                f"data.views: there are {given}, and task '{task.name}' compares {task.views}; give as many"
            )
        if given and task.views > 1 and task.evaluation_views > given:
            raise ScenarioError(
                f"data.views: there are {given}, and the evaluation of task '{task.name}' reads "
                f"{task.evaluation_views}; use data.augment for all of them"
            )
        augmented = any(view.augment for view in data.views) if given and task.views > 1 else data.augment
        for read, purpose in ((task.views - 1, "compares"), (task.evaluation_views, "is evaluated on")):
            if read and not augmented:
                raise ScenarioError(
                    f"{key}: '{task.name}' {purpose} {max(task.views, read) if purpose == 'compares' else read} "
                    "augmented views of every batch, and without data.augment they are the same; name augmentations"
                )
    if not given:
        return
    compare = [task.views > 1 for _, task in tasks]
    if not any(compare):
        raise ScenarioError(
            f"data.views: there are {given}, and task '{tasks[0][1].name}' compares none; use data.augment"
        )
    if all(compare) and data.augment:
        raise ScenarioError(
            "data.views: gives each view its own augmentations, and data.augment all the same; leave one of them"
        )
