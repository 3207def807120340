"""One batch of an evaluation, as a task sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rayfl.local.features import features_and_outputs


class EvaluationBatch:
    """A batch that nobody trains on, and the network that is scored on it.

    Attributes:
        module: The network, in evaluation mode.
        x: The inputs as the network takes them, not augmented: [n, ...], or a dictionary of such tensors.
        y: [n, ...] labels.
        views: Augmented versions of the inputs, as many as the task's `evaluation_views`: the same in every evaluation.
    """

    __slots__ = ("_features", "_outputs", "module", "views", "x", "y")

    def __init__(self, module: nn.Module, x: Any, y: torch.Tensor, views: tuple[Any, ...] = ()) -> None:
        self.module, self.x, self.y, self.views = module, x, y, views
        self._features: torch.Tensor | None = None
        self._outputs: torch.Tensor | None = None

    @property
    def outputs(self) -> torch.Tensor:
        """[n, ...] what the network returns for the inputs; computed once, when it is read."""
        if self._outputs is None:
            self._outputs = self.module(self.x)
        return self._outputs

    @property
    def features(self) -> torch.Tensor:
        """[n, d]: what enters the network's feature layer for the inputs.

        A task that reads them sets `reads_features`, so that networks without a feature layer are refused beforehand.
        """
        if self._features is None:
            self._features, self._outputs = features_and_outputs(self.module, self.x)
        return self._features
