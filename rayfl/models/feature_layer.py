"""The head of a network, declared by its class or by `model.feature_layer`, and the features that it reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rayfl.config.registry import nearest
from rayfl.errors import ScenarioError
from rayfl.models.network import Network

OPTION = "feature_layer"
"""The key of `model` that names the head, unless the constructor has a parameter of that name."""


def declare(network: nn.Module, layer: Any, where: str) -> None:
    """Sets the feature layer of a network whose class declares none.

    Args:
        network: Any module.
        layer: The name of the layer in `named_modules()`.
        where: The key of the model, for messages.

    Raises:
        ScenarioError: The class declares one, or the network has no such layer, or the layer has no parameters.
    """
    if isinstance(network, Network):
        own = f"declares '{network.feature_layer}' itself"
        raise ScenarioError(f"{where}.{OPTION}: model {type(network).__name__} {own}; leave it out")
    layers = _with_parameters(network)
    if layer not in layers:
        raise ScenarioError(
            f"{where}.{OPTION}: model {type(network).__name__} has no layer with parameters called '{layer}'; "
            f"{nearest(str(layer), layers)}"
        )
    network.feature_layer = layer


def head_of(network: nn.Module) -> str | None:
    """The name of the feature layer of a network; None if it is not declared."""
    return getattr(network, OPTION, None)


def undeclared(network: nn.Module) -> str:
    """The remedy for a network without the required feature layer, for messages."""
    layers, declared = _with_parameters(network), "derive the class from rayfl.models.Network"
    named = f"name that layer in `model` (feature_layer = '{layers[-1]}', its last one?), or " if layers else ""
    return f"model {type(network).__name__} does not declare its head; {named}{declared}"


def _with_parameters(network: nn.Module) -> list[str]:
    """The names of the modules that own parameters directly."""
    return [name for name, module in network.named_modules() if name and any(True for _ in module.parameters(False))]


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
