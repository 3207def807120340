"""A network's features: the vectors that enter its declared feature layer."""

from __future__ import annotations

import torch
from torch import nn

from rayfl.errors import ScenarioError


def features_and_outputs(network: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Features [n, d] and outputs of one forward pass.

    Raises:
        ScenarioError: the network's forward does not call its feature layer once.
    """
    seen: list[torch.Tensor] = []
    layer = network.get_submodule(str(network.feature_layer))
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        outputs = network(x)
    finally:
        handle.remove()
    if len(seen) != 1:
        raise ScenarioError(
            f"model {type(network).__name__}: its forward calls feature_layer '{network.feature_layer}' "
            f"{len(seen)} times, not once (as a module)"
        )
    return seen[0].flatten(1), outputs
