"""The head of a network: declared by its class, or named by the scenario (`model.feature_layer`)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.network import Network
from rayfl.registry import nearest

OPTION = "feature_layer"
"""The key of `model` that names the head, unless the constructor has a parameter of that name."""


def split_off(target: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Splits the options of a model into those of its constructor and the name of its feature layer, or None."""
    if OPTION not in options or OPTION in inspect.signature(target).parameters:
        return dict(options), None
    return {key: value for key, value in options.items() if key != OPTION}, options[OPTION]


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
