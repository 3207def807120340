"""One batch of local training, as a task's objective and an algorithm's loss terms see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rayfl.errors import RayflError
from rayfl.local.context import ClientContext
from rayfl.local.features import features_and_outputs


class TrainingBatch:
    """A batch, the network that trains on it, and whose it is.

    Attributes:
        module: The network, in training mode.
        client: Whose update it is: its state, its random streams, and `sent`, the vectors that the exchange brought.
        views: The inputs of every view, as the network takes them: [n, ...], or a dictionary of such tensors. One,
            unless the task compares several (`Task.views`).
        y: [n, ...] labels.
        upcoming: `upcoming(k)` gives the inputs of the k batches that follow, or of as many as there are; of several
            views the first.
    """

    __slots__ = ("_features", "_outputs", "_reads_features", "client", "module", "upcoming", "views", "y")

    def __init__(
        self,
        module: nn.Module,
        client: ClientContext,
        views: tuple[Any, ...],
        y: torch.Tensor,
        upcoming: Callable[[int], list[Any]],
        reads_features: bool = False,
    ) -> None:
        self.module, self.client, self.views, self.y, self.upcoming = module, client, views, y, upcoming
        self._reads_features = reads_features
        self._features: torch.Tensor | None = None
        self._outputs: torch.Tensor | None = None

    @property
    def x(self) -> Any:
        """The inputs of the first view."""
        return self.views[0]

    @property
    def outputs(self) -> torch.Tensor:
        """[n, ...] what the network returns for the first view, with gradients; computed once, when it is read."""
        if self._outputs is None:
            if self._reads_features:
                self._features, self._outputs = features_and_outputs(self.module, self.x)
            else:
                self._outputs = self.module(self.x)
        return self._outputs

    @property
    def features(self) -> torch.Tensor:
        """[n, d]: what enters the network's feature layer for the first view, with gradients.

        Raises:
            RayflError: Neither the training request nor the task said that it reads features.
        """
        if not self._reads_features:
            raise RayflError(
                "this batch has no features: set reads_features in the LocalTraining request, or as a class variable "
                "of the task"
            )
        _ = self.outputs
        assert self._features is not None
        return self._features
