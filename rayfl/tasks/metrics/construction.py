"""Builds the metrics that a scenario names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rayfl.config.component import Choice
from rayfl.config.section import Named
from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.metrics import metrics
from rayfl.tasks.metrics.metric import Metric
from rayfl.tasks.task import Task

OF_EVERY_METRIC = {"label": (str, "text"), "higher_is_better": (bool, "true or false")}
"""Options that rayfl reads itself, with their types: the metric's name in the records, and its direction."""


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


class _Metrics(Choice):
    def given_to(self, target: Any, chosen: Named, where: str) -> Sequence[str]:
        if not _is_function(target, chosen.name):
            return self.given
        what = f"{where}: metric '{chosen.name}'"
        positional = _in_order(target, what)
        if len(positional) < 2:
            raise ScenarioError(f"{what} is a function of {positional}; it must take (outputs, targets)")
        return positional[:2]

    def set_apart(self, target: Any, chosen: Named, where: str) -> dict[str, Any]:
        """The options of every metric: its name in the records, and its direction."""
        apart = {key: value for key, value in chosen.options.items() if key in OF_EVERY_METRIC}
        for key, (kind, expected) in OF_EVERY_METRIC.items():
            if key in apart and not isinstance(apart[key], kind):
                raise ScenarioError(f"{where}.{key}: must be {expected} (got {apart[key]!r})")
        if not metric_label(chosen).isidentifier():
            raise ScenarioError(f"{where}.label: '{metric_label(chosen)}' must be letters, digits and underscores")
        return apart


_FROM_TASK = {
    "kind": "kind",
    "task": "kind",
    "ignored_label": "ignored_label",
    "ignore_index": "ignored_label",
    "class_dimension": "class_dimension",
    "predictions": "predictions",
}
"""Arguments that rayfl passes to a metric that has them, and the task's attributes; rayfl's names and torchmetrics'."""

_NUM_OUTPUTS = ("num_outputs", "num_classes", "num_labels")
"""The names of one more, the width of the network's output."""

_LIKE_TARGETS = {"y_true", "target", "targets", "label", "labels", "y"}
_LIKE_OUTPUTS = {"y_pred", "y_score", "pred", "preds", "prediction", "predictions", "output", "outputs", "logits"}
"""Names of parameters whose order is not rayfl's if they are the first, or the second."""

METRICS = _Metrics(metrics, given=(*_FROM_TASK, *_NUM_OUTPUTS), otherwise="is an object of type {}, not a metric")


def _is_function(target: Any, name: str) -> bool:
    """Whether it is a user's metric function, not a class or a built-in metric."""
    return not isinstance(target, type) and name not in metrics


def _in_order(function: Callable[..., Any], what: str) -> list[str]:
    """The names of its positional parameters, which must not be (y_true, y_pred) as in scikit-learn."""
    positional = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) > 1 and (positional[0] in _LIKE_TARGETS or positional[1] in _LIKE_OUTPUTS):
        given = ", ".join(positional[:2])
        raise ScenarioError(
            f"{what} takes ({given}), but rayfl calls it with (outputs, targets); name them in this order"
        )
    return positional


def _built(chosen: Named, task: Task, num_outputs: int, where: str) -> Metric:
    what = f"{where}: metric '{chosen.name}'"
    if _is_function(METRICS.target(chosen.name, where), chosen.name):
        from rayfl.tasks.metrics.adapted import FunctionMetric

        return FunctionMetric(METRICS.bound(chosen, where))
    arguments = {name: getattr(task, attribute) for name, attribute in _FROM_TASK.items()}
    try:
        made = METRICS.build(chosen, where, **arguments, **dict.fromkeys(_NUM_OUTPUTS, num_outputs))
    except ScenarioError as error:
        raise ScenarioError(f"{what} with task '{task.name}': {error}") from None
    if isinstance(made, Metric):
        _in_order(made.state, f"{what}: state")
        return made
    torchmetrics = sys.modules.get("torchmetrics")
    if torchmetrics is None or not isinstance(made, torchmetrics.Metric):
        raise ScenarioError(
            f"{what} is neither a function (outputs, targets) nor a class derived from torchmetrics.Metric or "
            "rayfl.tasks.Metric"
        )
    _in_order(made.update, f"{what}: update")
    from rayfl.tasks.metrics.adapted import TorchMetric  # torchmetrics takes a second to load, and most runs need none

    try:
        return TorchMetric(made, task.predictions)
    except RayflError as error:
        raise ScenarioError(f"{what}: {error}") from None
