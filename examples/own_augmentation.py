"""Your own augmentations, beside one of torchvision's.

    python -m rayfl.scenario examples/own_augmentation.toml --backend inline

An augmentation is a function (x, rng, **options), or a class whose instances are called with (x, rng): x is a float32
tensor [n, height, width, channels], scaled to [0, 1] and normalised where the scenario normalises, and rng a numpy
generator of the client's own. It returns a new tensor of the same shape, dtype and device. Draw from rng alone, and the
run has the same bits on any number of hosts.

Transforms of torchvision's v2 need no code: they are named by their import path, are given pixels (uint8) before they
are scaled, and draw for every sample unless `per = "batch"`.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import PositiveFloat


def noise(x: torch.Tensor, rng: np.random.Generator, deviation: PositiveFloat = 0.1) -> torch.Tensor:
    """Adds normal noise to every pixel."""
    drawn = rng.normal(scale=deviation, size=tuple(x.shape)).astype(np.float32)
    return x + torch.from_numpy(drawn).to(x.device)
