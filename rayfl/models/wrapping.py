"""Networks made from another one, with a new head in place of its feature layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.building import build_module
from rayfl.models.network import Network


def wrapped(network: str | dict[str, Any], num_classes: int, input_shape: Sequence[int]) -> tuple[Network, nn.Linear]:
    """Builds the inner network.

    Args:
        network: A name ("lenet5"), or a table of name and options: { name = "resnet8", width = 32 }.
        num_classes: Width of its output.
        input_shape: Shape of one input.

    Returns:
        The network, and its feature layer.

    Raises:
        ScenarioError: The network is unknown, an option is wrong, or it declares no feature layer (it is not a
            `Network`) or one that is not torch.nn.Linear.
    """
    options = {"name": network} if isinstance(network, str) else dict(network)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ScenarioError('model.network: needs a name: "lenet5", or { name = "resnet8", width = 32 }')
    known = {"num_classes": num_classes, "input_shape": input_shape}
    module = build_module(name, options, known, "model.network")
    if not isinstance(module, Network):
        raise ScenarioError(
            f"model.network: '{name}' made a {type(module).__name__}, which declares no feature layer; derive it from "
            "rayfl.models.Network"
        )
    module.check_declaration()
    layer = module.get_submodule(module.feature_layer)
    if not isinstance(layer, nn.Linear):
        raise ScenarioError(
            f"model.network: the feature layer '{module.feature_layer}' of '{name}' is {type(layer).__name__}; a "
            "projection head requires a torch.nn.Linear"
        )
    return module, layer


def put_head(module: Network, head: nn.Module, layers: Sequence[str]) -> tuple[str, ...]:
    """Replaces the feature layer of a network by a head of the same name.

    Args:
        module: The network.
        head: The head.
        layers: Names, within the head, of the submodules with trained parameters, from input to output.

    Returns:
        The names of these submodules in the network.
    """
    replaced = module.feature_layer
    module.set_submodule(replaced, head)
    new = tuple(f"{replaced}.{layer}" for layer in layers)
    module.ordered_modules = _replace(module.ordered_modules, replaced, new)
    module.groupings = {
        grouping: tuple(_replace(unit, replaced, new) for unit in units) for grouping, units in module.groupings.items()
    }
    return new


def _replace(names: Sequence[str], replaced: str, by: Sequence[str]) -> tuple[str, ...]:
    return tuple(new for name in names for new in (by if name == replaced else (name,)))
