"""Metrics that compare features with those of a bank of training samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from rayfl.errors import RayflError
from rayfl.tasks.metrics.metric import Metric, State


class BankMetric(Metric):
    """Measures how well the labels of test samples follow from features, given those of `evaluation.bank`.

    Its states hold all features and labels, which are combined on one worker.
    """

    higher_is_better = True
    is_share = True
    reads_features = True

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        """Returns the features [n, d] and class labels [n] of a batch.

        Raises:
            RayflError: The labels are not classes.
        """
        if targets.ndim != 1 or targets.is_floating_point():
            raise RayflError(f"needs class labels [n]; the data has {targets.dtype} labels {list(targets.shape)}")
        return {"features": outputs.float().cpu().numpy(), "labels": targets.cpu().numpy()}

    def merged(self, states: Sequence[State]) -> State:
        return {name: np.concatenate([state[name] for state in states]) for name in states[0]}

    def value(self, state: State) -> float | None:
        raise RayflError("has no value without a bank of training samples")

    @abstractmethod
    def value_beside(self, state: State, bank: State) -> float:
        """Computes the value of a state.

        Args:
            state: The state of the test samples.
            bank: The state of the bank.
        """
