"""Builds the metrics that a scenario names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rayfl.config.registry import call_with_options, check_callable, check_options
from rayfl.config.section import Named
from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.metrics import metrics
from rayfl.tasks.metrics.metric import Metric
from rayfl.tasks.task import Task

OF_EVERY_METRIC = ("label", "higher_is_better")
"""Options that rayfl reads itself: the metric's name in the records, and its direction."""

GIVEN = (
    "kind",
    "task",
    "num_outputs",
    "num_classes",
    "num_labels",
    "ignored_label",
    "ignore_index",
    "class_dimension",
    "predictions",
)
"""Arguments that rayfl passes to a metric that has them; rayfl's names, then torchmetrics'."""


def metric_label(chosen: Named) -> str:
    """Returns the metric's name in the records: `label`, or its name, for an import path its last part."""
    return str(chosen.options.get("label") or chosen.name.rpartition(":")[2].rpartition(".")[2])


def build_metrics(
    chosen: Sequence[Named], task: Task, num_outputs: int, where: str = "evaluation.metrics"
) -> dict[str, Metric]:
    """Builds metrics.

    Args:
        chosen: The metrics as the scenario names them.
        task: The task.
        num_outputs: Width of the network's output.
        where: The key that names them.

    Returns:
        The metrics by label, in order.

    Raises:
        ScenarioError: A name or option is unknown, something is not a metric or does not fit the task, or two metrics
            have the same label.
    """
    built: dict[str, Metric] = {}
    for index, item in enumerate(chosen):
        key, label = f"{where}.{index}", metric_label(item)
        if label in built or label == "loss":
            raise ScenarioError(f"{key}: the label '{label}' is taken; give this metric another, label = \"...\"")
        built[label] = _built(item, task, num_outputs, key)
        if "higher_is_better" in item.options:
            built[label].higher_is_better = item.options["higher_is_better"]
    return built


def metric_options(chosen: Named, where: str) -> Mapping[str, Any]:
    """Returns the options that belong to the metric itself.

    Raises:
        ScenarioError: An option that rayfl reads itself has the wrong type.
    """
    options = dict(chosen.options)
    for key, kind, said in (("label", str, "text"), ("higher_is_better", bool, "true or false")):
        if key in options and not isinstance(options.pop(key), kind):
            raise ScenarioError(f"{where}.{key}: must be {said} (got {chosen.options[key]!r})")
    if not metric_label(chosen).isidentifier():
        raise ScenarioError(f"{where}.label: '{metric_label(chosen)}' must be letters, digits and underscores")
    return options


def function_arguments(name: str, target: Any, where: str) -> list[str] | None:
    """Returns the names of the two arguments of a user's metric function; None for a class or a built-in metric.

    Raises:
        ScenarioError: It takes fewer than two arguments.
    """
    if isinstance(target, type) or name in metrics:
        return None
    positional = [
        parameter.name
        for parameter in inspect.signature(target).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) < 2:
        raise ScenarioError(f"{where}: metric '{name}' is a function of {positional}; it must take (outputs, targets)")
    return positional[:2]


def metric_target(chosen: Named, where: str) -> Any:
    """Returns the class or function that a metric's name stands for.

    Raises:
        ScenarioError: The name is unknown or is not that of a metric.
    """
    target = metrics.resolve(chosen.name, where)
    check_callable(target, f"{where}: '{chosen.name}'", ", not a metric")
    return target


def _built(chosen: Named, task: Task, num_outputs: int, where: str) -> Metric:
    target, options = metric_target(chosen, where), metric_options(chosen, where)
    what = f"{where}: metric '{chosen.name}'"
    given = {
        "kind": task.kind,
        "task": task.kind,
        "num_outputs": num_outputs,
        "num_classes": num_outputs,
        "num_labels": num_outputs,
        "ignored_label": task.ignored_label,
        "ignore_index": task.ignored_label,
        "class_dimension": task.class_dimension,
        "predictions": task.predictions,
    }
    if arguments := function_arguments(chosen.name, target, where):
        from rayfl.tasks.metrics.adapted import FunctionMetric

        return FunctionMetric(partial(target, **check_options(target, options, arguments, where)))
    try:
        made = call_with_options(target, options, given, where)
    except ScenarioError as error:
        raise ScenarioError(f"{what} with task '{task.name}': {error}") from None
    if isinstance(made, Metric):
        return made
    torchmetrics = sys.modules.get("torchmetrics")
    if torchmetrics is None or not isinstance(made, torchmetrics.Metric):
        raise ScenarioError(
            f"{what} is neither a function (outputs, targets) nor a class derived from torchmetrics.Metric or "
            "rayfl.tasks.Metric"
        )
    from rayfl.tasks.metrics.adapted import TorchMetric  # torchmetrics takes a second to load, and most runs need none

    try:
        return TorchMetric(made, task.predictions)
    except RayflError as error:
        raise ScenarioError(f"{what}: {error}") from None
