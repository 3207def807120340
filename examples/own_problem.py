"""Your own data, network and metric: `rayfl run examples/own_problem.toml` (needs rayfl[tensorboard])."""

import numpy as np
import torch
from torch import nn


def shapes(seed: int) -> tuple[np.ndarray, ...]:
    """Pictures of 12 x 12 pixels with a bar, a frame, a dot or several of them; labels [n, 3] mark each shape."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=(1500, 3))
    labels[labels.sum(axis=1) == 0, 0] = 1
    pictures = rng.normal(0, 1, size=(1500, 12, 12))
    pictures[labels[:, 0] == 1, 5:7, :] += 1
    pictures[labels[:, 1] == 1, ::11, :] += 1
    pictures[labels[:, 2] == 1, 8:11, 8:11] += 1
    x = np.clip(120 + 60 * pictures, 0, 255).astype(np.uint8)[..., None]
    return x[:1200], labels[:1200], x[1200:], labels[1200:]


class GroupNormNet(nn.Sequential):
    def __init__(self, num_classes: int) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 36, num_classes),
        )  # fmt: skip


def exact_match(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """The share of pictures with every shape predicted correctly."""
    return float(((outputs > 0) == targets.bool()).all(dim=1).float().mean())
