"""One batch of local training, as the terms of the loss see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rayfl.errors import RayflError


@dataclass(frozen=True)
class TrainingBatch:
    """A batch and what the network made of it, with gradients.

    Attributes:
        x: [n, ...] the inputs as the network takes them, or a dictionary of such tensors.
        y: [n, ...] labels.
        outputs: [n, ...] what the network returned.
        upcoming: `upcoming(k)` gives the inputs of the k batches that follow, or of as many as there are.
    """

    x: Any
    y: torch.Tensor
    outputs: torch.Tensor
    upcoming: Callable[[int], list[Any]]
    _features: torch.Tensor | None = None

    @property
    def features(self) -> torch.Tensor:
        """[n, d]: what enters the network's feature layer.

        Raises:
            RayflError: The training request did not say that it reads features.
        """
        if self._features is None:
            raise RayflError("this batch has no features: set reads_features in the LocalTraining request")
        return self._features
