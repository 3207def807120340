"""A batch of an evaluation, as a task sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rayfl.local.features import features_and_outputs


class EvaluationBatch:
    """A batch that is evaluated, and the network; `Task.evaluated` receives it.

    Attributes:
        module: The network, in evaluation mode.
        x: The inputs as the network takes them, not augmented: [n, ...], or a dictionary of such tensors.
        y: [n, ...], the labels.
        views: Augmented versions of the inputs, as many as the task's `evaluation_views`; the same in every evaluation.

    Example:
        >>> import torch
        >>> from rayfl.local import EvaluationBatch
        >>> batch = EvaluationBatch(torch.nn.Linear(3, 2).eval(), torch.zeros(5, 3), torch.zeros(5, dtype=torch.long))
        >>> batch.outputs.shape
        torch.Size([5, 2])
    """

    __slots__ = ("_features", "_outputs", "module", "views", "x", "y")

    def __init__(self, module: nn.Module, x: Any, y: torch.Tensor, views: tuple[Any, ...] = ()) -> None:
        self.module, self.x, self.y, self.views = module, x, y, views
        self._features: torch.Tensor | None = None
        self._outputs: torch.Tensor | None = None

    @property
    def outputs(self) -> torch.Tensor:
        """[n, ...], the network's outputs for the inputs; computed once, on first access."""
        if self._outputs is None:
            self._outputs = self.module(self.x)
        return self._outputs

    @property
    def features(self) -> torch.Tensor:
        """[n, d], the input of the network's feature layer.

        A task that reads it sets `reads_features`; networks without a feature layer are then rejected before the run
        starts.
        """
        if self._features is None:
            self._features, self._outputs = features_and_outputs(self.module, self.x)
        return self._features
