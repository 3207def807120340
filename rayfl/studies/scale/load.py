"""The work of the scenarios in `scenarios/scale`: data and networks of any size, made in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import nn

CLASSES = 3


def samples(clients: PositiveInt = 100, each: PositiveInt = 4, values: PositiveInt = 4) -> dict[str, Any]:
    """Natural clients of float32 vectors; the label is the position of the largest of the first three values.

    Args:
        clients: Number of clients.
        each: Training samples of each client.
        values: Length of a sample, at least 3.
    """
    rng, number = np.random.default_rng(0), clients * each
    x = np.empty((number, values), np.float32)
    x[:] = rng.standard_normal(values, np.float32)
    x[:, :CLASSES] = rng.standard_normal((number, CLASSES), np.float32)
    y = x[:, :CLASSES].argmax(1)
    return {"train": (x, y, np.repeat(np.arange(clients, dtype=np.int32), each)), "test": (x[:64], y[:64])}


class Wide(nn.Module):
    """Two dense layers with about as many parameters as asked for.

    Args:
        num_classes: Width of the output.
        values: Length of a sample.
        params: Number of parameters.
    """

    def __init__(self, num_classes: PositiveInt, values: PositiveInt = 4, params: PositiveInt = 100) -> None:
        super().__init__()
        width = max(1, round((params - num_classes) / (values + 1 + num_classes)))
        self.hidden, self.head = nn.Linear(values, width), nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(torch.relu(self.hidden(x)))
        return logits
