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
    """A batch, the network that trains on it, and the client it belongs to.

    `Task.objective` and loss terms (`LossTerm`) receive it.

    Attributes:
        module: The network, in training mode.
        client: The client: its state, its random streams, and `sent`, the vectors that the exchange sent.
        views: The inputs of every view, as the network takes them: [n, ...], or a dictionary of such tensors. There is
            one view unless the task compares several (`Task.views`).
        y: [n, ...], the labels.
        upcoming: `upcoming(k)` returns the inputs of the next k batches, or of as many as remain; of several views, the
            first.

    Example:
        >>> import torch
        >>> from rayfl.local import TrainingBatch
        >>> labels, network = torch.tensor([0, 1]), torch.nn.Linear(3, 2)
        >>> batch = TrainingBatch(network, None, (torch.zeros(2, 3),), labels, upcoming=lambda number: [])
        >>> batch.x.shape, batch.outputs.shape
        (torch.Size([2, 3]), torch.Size([2, 2]))
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
        """[n, ...], the network's outputs for the first view, with gradients; computed once, on first access."""
        if self._outputs is None:
            if self._reads_features:
                self._features, self._outputs = features_and_outputs(self.module, self.x)
            else:
                self._outputs = self.module(self.x)
        return self._outputs

    @property
    def features(self) -> torch.Tensor:
        """[n, d], the input of the network's feature layer for the first view, with gradients.

        Raises:
            RayflError: Neither the training request nor the task declared that it reads features.
        """
        if not self._reads_features:
            raise RayflError(
                "this batch has no features: set reads_features in the LocalTraining request, or as a class variable "
                "of the task"
            )
        _ = self.outputs
        assert self._features is not None
        return self._features
