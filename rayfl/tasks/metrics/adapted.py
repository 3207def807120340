"""Adapts torchmetrics' metrics, and functions of all outputs and targets, to rayfl's interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torchmetrics
from torchmetrics.utilities import dim_zero_cat, dim_zero_max, dim_zero_min, dim_zero_sum

from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.metrics.metric import Metric, State
from rayfl.tasks.task import Task

_MERGED: dict[Any, Callable[[list[np.ndarray]], np.ndarray]] = {
    dim_zero_sum: lambda parts: np.sum(parts, axis=0),
    dim_zero_max: lambda parts: np.max(parts, axis=0),
    dim_zero_min: lambda parts: np.min(parts, axis=0),
    dim_zero_cat: np.concatenate,
}
"""torchmetrics' own reductions on arrays; others cannot be computed exactly from parts."""


class TorchMetric(Metric):
    """A metric of torchmetrics, with its floating-point states in float64.

    Args:
        metric: The metric, which must return a single number.
        task: Converts outputs to what torchmetrics expects.

    Raises:
        ScenarioError: A state of the metric is neither a sum, a maximum, a minimum nor a list of values.
    """

    def __init__(self, metric: torchmetrics.Metric, task: Task) -> None:
        self._metric, self._predictions = metric.set_dtype(torch.float64), task.predictions
        for name, reduction in metric._reductions.items():
            if reduction not in _MERGED:
                raise ScenarioError(
                    f"state '{name}' of {type(metric).__name__} cannot be merged exactly from parts of the test "
                    "samples; give a function (outputs, targets) of all samples instead"
                )
        self.higher_is_better = metric.higher_is_better
        self.is_share = (metric.plot_lower_bound, metric.plot_upper_bound) == (0.0, 1.0)

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        self._metric.to(outputs.device)
        self._metric.reset()
        predictions = self._predictions(outputs)
        if predictions.ndim == targets.ndim + 1 and predictions.shape[-1] == 1:  # a column for a vector of targets
            predictions = predictions.squeeze(-1)
        self._metric.update(predictions, targets)
        return {name: _array(getattr(self._metric, name)) for name in self._metric._reductions}

    def merged(self, states: Sequence[State]) -> State:
        return {
            name: _MERGED[reduction]([state[name] for state in states])
            for name, reduction in self._metric._reductions.items()
        }

    def value(self, state: State) -> float:
        self._metric.to("cpu")
        self._metric.reset()
        for name, default in self._metric._defaults.items():
            value = torch.from_numpy(np.array(state[name]))
            setattr(self._metric, name, [value] if isinstance(default, list) else value)
        self._metric._update_count = 1
        with warnings.catch_warnings():  # it would warn of every client that lacks a class, in every evaluation
            warnings.simplefilter("ignore")
            computed = self._metric.compute()
        return _number(computed, f"torchmetrics' {type(self._metric).__name__}")


class FunctionMetric(Metric):
    """A function of the outputs and targets of all evaluated samples, which are kept until it is called.

    Args:
        function: Takes outputs [n, ...] as the network returned them and targets [n, ...], CPU tensors in sample order,
            and returns a number.
    """

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        self._function = function

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        return {"outputs": outputs.cpu().numpy(), "targets": targets.cpu().numpy()}

    def merged(self, states: Sequence[State]) -> State:
        return {name: np.concatenate([state[name] for state in states]) for name in ("outputs", "targets")}

    def value(self, state: State) -> float:
        result = self._function(*(torch.from_numpy(np.array(state[name])) for name in ("outputs", "targets")))
        return _number(result, "it")


def _array(state: Any) -> np.ndarray:
    tensor = dim_zero_cat(state) if isinstance(state, list) else state
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array


def _number(result: Any, who: str) -> float:
    try:
        return float(result)
    except (TypeError, ValueError, RuntimeError):
        shape = f" of shape {list(result.shape)}" if isinstance(result, torch.Tensor) else ""
        raise RayflError(f"{who} returned a {type(result).__name__}{shape}, not a single number") from None
