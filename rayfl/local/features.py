"""A network's features: the vectors that enter its declared feature layer."""

from __future__ import annotations

import torch
from torch import nn


def features_and_logits(network: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Features [n, d] and logits [n, classes] of one forward pass."""
    seen: list[torch.Tensor] = []
    layer = network.get_submodule(str(network.feature_layer))
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = network(x)
    finally:
        handle.remove()
    return seen[0].flatten(1), logits
