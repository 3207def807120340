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
from rayfl.models.attributes import Values, values_of
from rayfl.tasks.metrics.metric import Metric, State

_MERGED: dict[Any, Callable[[list[np.ndarray]], np.ndarray]] = {
    dim_zero_sum: lambda parts: np.sum(parts, axis=0),
    dim_zero_max: lambda parts: np.max(parts, axis=0),
    dim_zero_min: lambda parts: np.min(parts, axis=0),
    dim_zero_cat: np.concatenate,
}
"""torchmetrics' own reductions on arrays; others cannot be computed exactly from parts."""

_UPDATES = "_update_count"
"""torchmetrics' own count of updates, by which a metric may divide."""

Defined = Callable[[State], np.ndarray]
"""Which of the values of a metric its labels define: bool [values], from its state."""


class TorchMetric(Metric):
    """A metric of torchmetrics, with its floating-point states in float64.

    Args:
        metric: The metric, which must return a single number; with `defined`, a number or one for each class.
        predictions: Converts outputs to what torchmetrics expects (`Task.predictions`).
        defined: Which of its values are defined: the metric is their mean, and undefined if there is none. By default
            the metric's own value counts whatever the labels.

    Raises:
        ScenarioError: A state of the metric is neither a sum, a maximum, a minimum nor a list of values.
    """

    def __init__(
        self,
        metric: torchmetrics.Metric,
        predictions: Callable[[torch.Tensor], torch.Tensor],
        defined: Defined | None = None,
    ) -> None:
        self._metric, self._predictions = metric.set_dtype(torch.float64), predictions
        self._defined = defined
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
        state = {name: _array(getattr(self._metric, name)) for name in self._metric._reductions}
        return state | {_UPDATES: np.array(self._metric._update_count)}

    def merged(self, states: Sequence[State]) -> State:
        return {
            name: _MERGED[reduction]([state[name] for state in states])
            for name, reduction in {**self._metric._reductions, _UPDATES: dim_zero_sum}.items()
        }

    def undeclared(self) -> Values:
        values = values_of((), metric=self._metric)
        return {place: value for place, value in values.items() if place[0][1] not in self._metric._reductions}

    def value(self, state: State) -> float | None:
        if self._defined is None:
            return _number(self._computed(state), f"torchmetrics' {type(self._metric).__name__}")
        defined = torch.from_numpy(self._defined(state))
        return float(self._computed(state).double().reshape(-1)[defined].mean()) if defined.any() else None

    def _computed(self, state: State) -> Any:
        self._metric.to("cpu")
        self._metric.reset()
        for name, default in self._metric._defaults.items():
            value = torch.from_numpy(np.array(state[name]))
            setattr(self._metric, name, [value] if isinstance(default, list) else value)
        self._metric._update_count = int(state[_UPDATES])
        with warnings.catch_warnings():  # it would warn of every client that lacks a class, in every evaluation
            warnings.simplefilter("ignore")
            return self._metric.compute()


class FunctionMetric(Metric):
    """A function of the outputs and targets of all evaluated samples, which are kept until it is called.

    Args:
        function: Takes outputs [n, ...] as the network returned them and targets [n, ...], CPU tensors in sample order,
            and returns a number, or None where the labels leave it undefined.
    """

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        self._function = function

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        return {"outputs": outputs.cpu().numpy(), "targets": targets.cpu().numpy()}

    def merged(self, states: Sequence[State]) -> State:
        return {name: np.concatenate([state[name] for state in states]) for name in ("outputs", "targets")}

    def value(self, state: State) -> float | None:
        result = self._function(*(torch.from_numpy(np.array(state[name])) for name in ("outputs", "targets")))
        return None if result is None else _number(result, "it")


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
