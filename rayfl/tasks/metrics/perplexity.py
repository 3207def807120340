"""Perplexity: the exponential of the mean cross-entropy per symbol."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from rayfl.errors import ScenarioError
from rayfl.tasks.metrics.metric import Metric, State
from rayfl.tasks.task import Kind


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
