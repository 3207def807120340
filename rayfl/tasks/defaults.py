"""Writes out every option of a scenario's tasks and metrics."""

from __future__ import annotations

from rayfl.config.component import with_defaults
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.tasks.construction import build_task
from rayfl.tasks.metrics.construction import GIVEN, function_arguments, metric_label, metric_options, metric_target
from rayfl.tasks.task import Task


def with_task_defaults(scenario: Scenario) -> Scenario:
    """Returns the scenario with every option of its tasks and metrics written out, including those of its phases.

    Raises:
        ScenarioError: As `build_task`; for an invalid metric; or if the headline is not among the metrics.
    """
    task, evaluation = build_task(scenario), scenario.evaluation
    chosen = tuple(
        _metric_with_defaults(item, f"evaluation.metrics.{index}")
        for index, item in enumerate(evaluation.metrics or task.metrics())
    )
    labels = [*map(metric_label, chosen), *(["loss"] if task.has_loss else [])]
    headline = evaluation.headline or labels[0]
    if headline not in labels:
        raise ScenarioError(f"evaluation.headline: '{headline}' is not among the metrics: {', '.join(labels)}")
    return scenario.model_copy(
        update={
            "task": _written_out(task),
            "evaluation": evaluation.model_copy(update={"metrics": chosen, "headline": headline}),
            "phases": tuple(_of_its_own(scenario, phase) for phase in scenario.phases),
        }
    )


def _of_its_own(scenario: Scenario, phase: Phase) -> Phase:
    """Returns the phase with the defaults of its own task and metrics, if it has any."""
    task, metrics = build_task(scenario, phase), phase.metrics
    if metrics is None and phase.task is not None:
        metrics = task.metrics()
    if metrics is None:
        return phase
    where = f"phases.{phase.name}.metrics"
    chosen = tuple(_metric_with_defaults(item, f"{where}.{index}") for index, item in enumerate(metrics))
    return phase.model_copy(update={"task": phase.task and _written_out(task), "metrics": chosen})


def _written_out(task: Task) -> Named:
    return Named.model_validate(task.model_dump(mode="json", exclude_none=True))


def _metric_with_defaults(chosen: Named, where: str) -> Named:
    target, options = metric_target(chosen, where), metric_options(chosen, where)
    known = function_arguments(chosen.name, target, where) or GIVEN
    own = with_defaults(Named.model_validate({**options, "name": chosen.name}), target, known, where)
    return Named.model_validate({**own.options, **chosen.options, "name": chosen.name})
