"""R2, the coefficient of determination."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rayfl.errors import ScenarioError
from rayfl.tasks.metrics.metric import Metric, State
from rayfl.tasks.task import Kind


class R2(Metric):
    """Coefficient of determination, the mean over outputs; undefined for an output whose labels are all equal.

    So it is undefined for a single sample.

    Args:
        kind: The task's kind of classification.
    """

    higher_is_better = True

    def __init__(self, kind: Kind | None) -> None:
        if kind is not None:
            raise ScenarioError("needs a task with real-valued targets")

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        predicted, wanted = (tensor.double().cpu().numpy() for tensor in (outputs, targets))
        if predicted.ndim == wanted.ndim + 1 and predicted.shape[-1] == 1:  # a column for a vector of targets
            predicted = predicted[..., 0]
        if predicted.shape != wanted.shape:
            raise ScenarioError(f"outputs {list(predicted.shape)} do not fit targets {list(wanted.shape)}")
        mean = wanted.mean(axis=0)
        return {
            "samples": np.array(len(wanted)),
            "mean": mean,
            "deviations": np.square(wanted - mean).sum(axis=0),
            "errors": np.square(predicted - wanted).sum(axis=0),
            "lowest": wanted.min(axis=0),
            "highest": wanted.max(axis=0),
        }

    def merged(self, states: Sequence[State]) -> State:
        parts = {name: np.stack([state[name] for state in states]) for name in states[0]}
        samples = parts["samples"].sum()
        weights = parts["samples"].reshape(-1, *[1] * (parts["mean"].ndim - 1))
        mean = (weights * parts["mean"]).sum(axis=0) / samples
        between = (weights * np.square(parts["mean"] - mean)).sum(axis=0)  # what the parts' own deviations leave out
        return {
            "samples": samples,
            "mean": mean,
            "deviations": parts["deviations"].sum(axis=0) + between,
            "errors": parts["errors"].sum(axis=0),
            "lowest": parts["lowest"].min(axis=0),
            "highest": parts["highest"].max(axis=0),
        }

    def value(self, state: State) -> float | None:
        vary = state["highest"] > state["lowest"]
        return float(np.mean(1 - state["errors"][vary] / state["deviations"][vary])) if vary.any() else None
