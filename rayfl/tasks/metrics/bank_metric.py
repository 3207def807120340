"""Metrics of features that are read beside those of a bank of training samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from rayfl.errors import RayflError
from rayfl.tasks.metrics.metric import Metric, State


class BankMetric(Metric):
    """A figure that says how well labels of test samples follow from features, given those of `evaluation.bank`.

    Its states hold all features and labels, which are put together on one host.
    """

    is_share = True
    reads_features = True

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        """The features [n, d] and class labels [n] of a batch.

        Raises:
            RayflError: Labels are no classes.
        """
        if targets.ndim != 1 or targets.is_floating_point():
            raise RayflError(f"needs class labels [n]; the data has {targets.dtype} labels {list(targets.shape)}")
        return {"features": outputs.float().cpu().numpy(), "labels": targets.cpu().numpy()}

    def merged(self, states: Sequence[State]) -> State:
        return {name: np.concatenate([state[name] for state in states]) for name in states[0]}

    def value(self, state: State) -> float:
        raise RayflError("has no value without a bank of training samples")

    @abstractmethod
    def value_beside(self, state: State, bank: State) -> float:
        """The value of a state.

        Args:
            state: Of test samples.
            bank: Of the bank's.
        """
