"""Size and modules of registered networks, found by building them with their defaults."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import nn

WRAPPED = "lenet5"
"""The network for those that wrap another one."""

SHAPE = (32, 32, 3)
CLASSES = 10


class Built(NamedTuple):
    """A network built with its defaults.

    Attributes:
        network: The network, whose parameters have no values.
        parameters: How many there are.
        shape: Height, width and channels, or length, of its inputs.
        classes: Its outputs.
        wraps: Whether it was built around `WRAPPED`.
    """

    network: nn.Module
    parameters: int
    shape: tuple[int, ...]
    classes: int
    wraps: bool


def built(target: Any) -> Built | None:
    """Builds a network on PyTorch's meta device, where no values are drawn or stored.

    Returns None if its size depends on files.
    """
    parameters = inspect.signature(target).parameters
    if "folder" in parameters:
        return None
    arguments: dict[str, Any] = {"network": WRAPPED} if "network" in parameters else {}
    sizes = {"num_classes": CLASSES, "input_shape": SHAPE}
    required = [given for given in sizes if parameters[given].default is inspect.Parameter.empty]
    arguments |= {given: sizes[given] for given in required}
    with torch.device("meta"):
        network = target(**arguments)
    count = sum(parameter.numel() for parameter in network.parameters())
    shape, classes = (arguments.get(given, parameters[given].default) for given in ("input_shape", "num_classes"))
    return Built(network, count, tuple(shape), classes, "network" in parameters)


def network_facts(name: str, target: Any) -> list[str]:
    """Returns the size of the default network, and the modules that options can name."""
    found = built(target)
    if found is None:
        return []
    shape = ", ".join(map(str, found.shape))
    around = f" around `{WRAPPED}`" if found.wraps else ""
    facts = [
        f"Built by default{around}, with inputs of shape `[{shape}]` and {found.classes} outputs: "
        f"{found.parameters:_} parameters.".replace("_", "\N{NARROW NO-BREAK SPACE}")
    ]
    if modules := getattr(found.network, "ordered_modules", ()):
        facts.append(f"Modules, from input to output: {', '.join(f'`{module}`' for module in modules)}.")
    if layer := getattr(found.network, "feature_layer", None):
        facts.append(f"Head (feature layer): `{layer}`.")
    return [" ".join(facts)]
