"""One small experiment for every simulator: its network, its settings, and the samples that peers read from a file."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import torch
from torch import nn

CLIENTS, COHORT, ROUNDS, EVERY = 100, 10, 40, 5
EPOCHS, BATCH, RATE = 2, 16, 0.1
CLASSES = 10


class Network(nn.Module):
    """LeNet-5 on grey images of 28 x 28 pixels, white paper being 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(1 - x)
        return logits


@cache
def samples(client: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The images and labels of a client, or those of the test set, from the file that SAMPLES names."""
    with np.load(os.environ["SAMPLES"]) as file:
        rows = file["owner"] == (-1 if client is None else client)
        return torch.from_numpy(file["x"][rows]), torch.from_numpy(file["y"][rows])
