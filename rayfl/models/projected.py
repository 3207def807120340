"""A network with MOON's projection head before its classifier."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from pydantic import PositiveInt
from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.building import build_module
from rayfl.models.network import Network


def projected(
    network: str | dict[str, Any],
    num_classes: int,
    input_shape: Sequence[int],
    width: PositiveInt = 256,
    hidden: PositiveInt | None = None,
) -> Network:
    """Builds a network with a head in place of its last layer: d - `hidden` - ReLU - `width` - classes.

    Head and classifier are in series: the head is part of the predictor, and the features are the projected vector.
    92 626 parameters on LeNet-5 with ten classes.

    From Li et al., "Model-Contrastive Federated Learning", CVPR 2021, and its code.

    Args:
        network: A name ("lenet5"), or a table of name and options: { name = "resnet8", width = 32 }.
        num_classes: Width of the output.
        input_shape: Shape of one input, which goes to the network.
        width: Length of the projected vector.
        hidden: Units of the head's ReLU layer; by default as many as the vector that enters it (d) has. FedDecorr's
            head has half.

    Raises:
        ScenarioError: The network is unknown, an option is wrong, or it declares no feature layer (it is no
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
            f"model.network: '{name}' made a {type(module).__name__}, which declares no feature layer to project; "
            "make it a rayfl.models.Network"
        )
    module.check_declaration()
    replaced = module.feature_layer
    classifier = module.get_submodule(replaced)
    if not isinstance(classifier, nn.Linear):
        raise ScenarioError(
            f"model.network: the feature layer '{replaced}' of '{name}' is {type(classifier).__name__}; a projection "
            "head goes before a torch.nn.Linear only"
        )
    d = classifier.in_features
    head = OrderedDict(
        hidden=nn.Linear(d, hidden or d),
        relu=nn.ReLU(),
        projection=nn.Linear(hidden or d, width),
        classifier=nn.Linear(width, classifier.out_features),
    )
    module.set_submodule(replaced, nn.Sequential(head))
    layers = tuple(f"{replaced}.{layer}" for layer in ("hidden", "projection", "classifier"))
    module.ordered_modules = _replace(module.ordered_modules, replaced, layers)
    module.groupings = {
        grouping: tuple(_replace(unit, replaced, layers) for unit in units)
        for grouping, units in module.groupings.items()
    }
    module.feature_layer = layers[-1]
    return module


def _replace(names: Sequence[str], replaced: str, by: Sequence[str]) -> tuple[str, ...]:
    """Puts the names of the head in the place of the layer that it replaces."""
    return tuple(new for name in names for new in (by if name == replaced else (name,)))
