"""A small network with batch norm, for algorithms that need it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import nn


class NormalizedPerceptron(nn.Module):
    """A hidden layer of 64 units with batch norm, and the classes.

    Args:
        num_classes: Width of the output.
        input_shape: Of a sample.
    """

    def __init__(self, num_classes: int, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), 64), nn.BatchNorm1d(64), nn.ReLU())
        self.head = nn.Linear(64, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(x))
        return logits
