"""Size and modules of registered networks, found by building them with their defaults."""

from __future__ import annotations

import inspect
from typing import Any

import torch

WRAPPED = "lenet5"
"""The network for those that wrap another one."""

SHAPE = (32, 32, 3)
CLASSES = 10


def network_facts(name: str, target: Any) -> list[str]:
    """Returns the size of the default network, and the modules that options can name.

    No values are drawn or stored: parameters are on PyTorch's meta device.
    """
    parameters = inspect.signature(target).parameters
    if "folder" in parameters:  # its size depends on the files there
        return []
    arguments: dict[str, Any] = {"network": WRAPPED} if "network" in parameters else {}
    sizes = {"num_classes": CLASSES, "input_shape": SHAPE}
    required = [given for given in sizes if parameters[given].default is inspect.Parameter.empty]
    arguments |= {given: sizes[given] for given in required}
    with torch.device("meta"):
        network = target(**arguments)
    count = sum(parameter.numel() for parameter in network.parameters())
    chosen = {given: arguments.get(given, parameters[given].default) for given in ("num_classes", "input_shape")}
    shape = ", ".join(map(str, chosen["input_shape"]))
    around = f" around `{WRAPPED}`" if "network" in parameters else ""
    facts = [
        f"Built by default{around}, with inputs of shape `[{shape}]` and {chosen['num_classes']} outputs: "
        f"{count:_} parameters.".replace("_", "\N{NARROW NO-BREAK SPACE}")
    ]
    if modules := getattr(network, "ordered_modules", ()):
        facts.append(f"Modules, from input to output: {', '.join(f'`{module}`' for module in modules)}.")
    if layer := getattr(network, "feature_layer", None):
        facts.append(f"Head (feature layer): `{layer}`.")
    return [" ".join(facts)]
