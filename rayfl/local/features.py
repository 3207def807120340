"""A network's features: the input vectors of its declared feature layer."""

from __future__ import annotations

import torch
from torch import nn

from rayfl.errors import ScenarioError


def features_and_outputs(network: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes features and outputs in one forward pass.

    Args:
        network: A network with the attribute `feature_layer`, the name of a module.
        x: [n, ...], the inputs.

    Returns:
        The features [n, d], which are the flattened input of the feature layer, and the outputs [n, ...].

    Raises:
        ScenarioError: The network's forward does not call its feature layer exactly once.

    Example:
        >>> import torch
        >>> from rayfl.local import features_and_outputs
        >>> network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> network.feature_layer = "2"
        >>> features, outputs = features_and_outputs(network, torch.zeros(5, 3))
        >>> features.shape, outputs.shape
        (torch.Size([5, 8]), torch.Size([5, 2]))
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
