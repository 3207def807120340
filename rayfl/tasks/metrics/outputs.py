"""Metrics of a network's outputs: accuracy, perplexity, R2, and the spread that shows whether outputs collapsed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch.nn.functional import normalize

from rayfl.errors import ScenarioError
from rayfl.tasks.metrics.metric import Metric, State, higher_is
from rayfl.tasks.task import Kind


class TopKAccuracy(Metric):
    """The share of labels among the k largest logits. Undefined without labels that count.

    Args:
        k: Number of classes that count as predicted.
        kind: The task's kind of classification.
        num_outputs: Number of classes.
        class_dimension: The dimension of the outputs that indexes the classes.
        ignored_label: The label that is excluded.
    """

    higher_is_better = True
    is_share = True

    def __init__(
        self,
        k: PositiveInt,
        kind: Kind | None,
        num_outputs: int,
        class_dimension: int,
        ignored_label: int | None = None,
    ) -> None:
        if kind != "multiclass":
            raise ScenarioError("needs a task with one class per label")
        if k > num_outputs:
            raise ScenarioError(f"counts the {k} most probable classes, but there are only {num_outputs}")
        self._k, self._classes, self._ignored = k, class_dimension, ignored_label

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        if self._k == 1:
            hits = outputs.argmax(dim=self._classes) == targets
        else:
            hits = (outputs.topk(self._k, dim=self._classes).indices == targets.unsqueeze(self._classes)).any(
                dim=self._classes
            )
        counted = targets.numel()
        if self._ignored is not None:
            labelled = targets != self._ignored
            hits, counted = hits & labelled, int(labelled.sum())
        return {"hits": np.array(int(hits.sum())), "counted": np.array(counted)}

    def value(self, state: State) -> float | None:
        counted = int(state["counted"])
        return int(state["hits"]) / counted if counted else None


class Accuracy(TopKAccuracy):
    """The share of labels with the largest logit. Undefined without labels that count."""

    def __init__(
        self, kind: Kind | None, num_outputs: int, class_dimension: int, ignored_label: int | None = None
    ) -> None:
        super().__init__(1, kind, num_outputs, class_dimension, ignored_label)


@higher_is(True)
def top_5(kind: Kind | None, num_outputs: int, class_dimension: int, ignored_label: int | None = None) -> TopKAccuracy:
    """The share of labels among the five largest logits. Undefined without labels that count."""
    return TopKAccuracy(5, kind, num_outputs, class_dimension, ignored_label)


class Perplexity(Metric):
    """exp of the mean negative log-likelihood of the labelled positions; symbols are the last dimension of outputs.

    Undefined without labelled positions.

    Args:
        kind: The task's kind of classification.
        class_dimension: The dimension of the outputs that indexes the symbols.
        ignored_label: The label that is excluded.
    """

    higher_is_better = False

    def __init__(self, kind: Kind | None, class_dimension: int, ignored_label: int | None = None) -> None:
        if kind != "multiclass" or class_dimension != -1:
            raise ScenarioError("needs task 'next_symbol'")
        self._ignored = ignored_label

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        ignored = -100 if self._ignored is None else self._ignored
        loss = F.cross_entropy(outputs.movedim(-1, 1).double(), targets, reduction="sum", ignore_index=ignored)
        return {"loss": np.array(float(loss)), "counted": np.array(int((targets != ignored).sum()))}

    def value(self, state: State) -> float | None:
        counted = int(state["counted"])
        return math.exp(float(state["loss"]) / counted) if counted else None


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


COLLAPSED = 0.05
"""A spread below which outputs carry almost no information about their samples."""


class Spread(Metric):
    """sqrt(d) times the mean, over d dimensions, of the standard deviation over samples of unit-length outputs.

    It is close to 1 if directions are evenly distributed, and 0 if all are the same: the self-supervised network has
    collapsed. For outputs [n, k, d], the first of k is used. Undefined for fewer than two samples.

    From Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, section 4.1.
    """

    higher_is_better = True

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        first = outputs[:, 0] if outputs.ndim == 3 else outputs.flatten(1)
        directions = normalize(first.double())
        sums = torch.stack([directions.sum(dim=0), directions.square().sum(dim=0)])
        return {"sums": sums.cpu().numpy(), "samples": np.array(len(directions))}

    def value(self, state: State) -> float | None:
        samples = int(state["samples"])
        if samples < 2:
            return None
        mean, square = state["sums"] / samples
        deviations = np.sqrt(np.maximum(square - mean**2, 0))
        return math.sqrt(len(mean)) * float(deviations.mean())

    def remark(self, value: float) -> str:
        remark = "nearly all outputs have the same direction, as in a network that has collapsed or is still untrained"
        return remark if value < COLLAPSED else ""
