"""From the task and the metrics that a scenario names to the objects themselves."""

from __future__ import annotations

from rayfl.component import build_component
from rayfl.config.defaults import with_defaults
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.tasks import tasks
from rayfl.tasks.metrics.building import GIVEN, function_arguments, metric_label, metric_options, metric_target
from rayfl.tasks.task import Task


def build_task(scenario: Scenario) -> Task:
    """The scenario's task.

    Raises:
        ScenarioError: An unknown name, something that is no task, or an option that is unknown or out of range.
    """
    try:
        built: Task = build_component(tasks, Task, scenario.task)
    except ScenarioError as error:
        raise ScenarioError(f"task: {error}") from None
    return built


def with_task_defaults(scenario: Scenario) -> Scenario:
    """The same scenario with every option of its task and metrics written out.

    Raises:
        ScenarioError: As `build_task`, of a metric, or a headline that is not among the metrics.
    """
    task, evaluation = build_task(scenario), scenario.evaluation
    chosen = tuple(
        _metric_with_defaults(item, f"evaluation.metrics.{index}")
        for index, item in enumerate(evaluation.metrics or task.metrics())
    )
    labels = [*map(metric_label, chosen), "loss"]
    headline = evaluation.headline or labels[0]
    if headline not in labels:
        raise ScenarioError(f"evaluation.headline: '{headline}' is not among the metrics: {', '.join(labels)}")
    return scenario.model_copy(
        update={
            "task": Named.model_validate(task.model_dump(mode="json", exclude_none=True)),
            "evaluation": evaluation.model_copy(update={"metrics": chosen, "headline": headline}),
        }
    )


def _metric_with_defaults(chosen: Named, where: str) -> Named:
    target, options = metric_target(chosen, where), metric_options(chosen, where)
    known = function_arguments(chosen.name, target, where) or GIVEN
    own = with_defaults(Named.model_validate({**options, "name": chosen.name}), target, known, where)
    return Named.model_validate({**own.options, **chosen.options, "name": chosen.name})
