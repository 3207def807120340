"""Perplexity: the exponential of the mean cross-entropy of a symbol."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from rayfl.tasks.metrics.metric import Metric, State


class Perplexity(Metric):
    """exp of the mean negative log-likelihood of the labelled positions; symbols are the last dimension of outputs.

    Args:
        ignored_label: The label that does not count.
    """

    higher_is_better = False

    def __init__(self, ignored_label: int | None = None) -> None:
        self._ignored = ignored_label

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        ignored = -100 if self._ignored is None else self._ignored
        loss = F.cross_entropy(outputs.movedim(-1, 1).double(), targets, reduction="sum", ignore_index=ignored)
        return {"loss": np.array(float(loss)), "counted": np.array(int((targets != ignored).sum()))}

    def value(self, state: State) -> float:
        counted = int(state["counted"])
        return math.exp(float(state["loss"]) / counted) if counted else float("nan")
