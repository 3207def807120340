"""Views that are the same in every batch, and a small encoder, for tests that compute beside rayfl."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from rayfl.models.network import Network

VIEWS = [{"augment": [f"{__name__}:{name}"]} for name in ("turned", "brighter", "same")]


class Encoder(Network):
    """A dense layer with batch norm, and the head."""

    ordered_modules = ("first", "norm", "fc")
    feature_layer = "fc"

    def __init__(self, input_shape: Sequence[int], num_classes: int = 3) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(int(np.prod(input_shape)), 6, bias=False), nn.BatchNorm1d(6)
        self.fc: nn.Module = nn.Linear(6, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.fc(self.norm(self.first(x.flatten(1))).relu())
        return outputs


def turned(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return x.flip(1).contiguous()


def brighter(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return 0.5 * x + 0.25


def same(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return x.clone()


def views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The views of images [n, channels, height, width]."""
    return x.flip(2), 0.5 * x + 0.25, x
