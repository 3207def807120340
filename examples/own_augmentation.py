"""Your own augmentation, combined with one from torchvision.

    python -m rayfl.scenario examples/own_augmentation.toml --backend inline

An augmentation is a function (x, rng, **options), or a class whose instances are called with (x, rng): x is a float32
tensor [n, height, width, channels], scaled to [0, 1] and normalised if the scenario normalises; rng is the client's own
numpy generator. It returns a new tensor of the same shape, dtype and device. Draw only from rng, and the run gives the
same bits on any number of worker processes.

Transforms of torchvision's v2 need no code: name them by their import path. They get pixels (uint8) before scaling, and
draw anew for every sample unless `per = "batch"`.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import PositiveFloat


def noise(x: torch.Tensor, rng: np.random.Generator, deviation: PositiveFloat = 0.1) -> torch.Tensor:
    """Adds Gaussian noise to every pixel."""
    drawn = rng.normal(scale=deviation, size=tuple(x.shape)).astype(np.float32)
    return x + torch.from_numpy(drawn).to(x.device)
