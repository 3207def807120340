"""Accuracy: the share of labels that are the most probable class, or among the k most probable ones."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import PositiveInt

from rayfl.errors import ScenarioError
from rayfl.tasks.metrics.metric import Metric, State
from rayfl.tasks.task import Kind


class TopK(Metric):
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


class Accuracy(TopK):
    """The share of labels with the largest logit. Undefined without labels that count."""

    def __init__(
        self, kind: Kind | None, num_outputs: int, class_dimension: int, ignored_label: int | None = None
    ) -> None:
        super().__init__(1, kind, num_outputs, class_dimension, ignored_label)


def top_5(kind: Kind | None, num_outputs: int, class_dimension: int, ignored_label: int | None = None) -> TopK:
    """The share of labels among the five largest logits. Undefined without labels that count."""
    return TopK(5, kind, num_outputs, class_dimension, ignored_label)
