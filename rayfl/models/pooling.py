"""Max pooling and ReLU, in the cheaper order."""

from __future__ import annotations

import torch
from torch.nn import functional


def pooled(x: torch.Tensor) -> torch.Tensor:
    """2x2 max pooling and ReLU of feature maps, [n, C, H, W] to [n, C, H // 2, W // 2].

    The two commute, with bitwise equal values and gradients; in this order ReLU computes a quarter of the values.
    """
    return functional.relu(functional.max_pool2d(x, 2))
