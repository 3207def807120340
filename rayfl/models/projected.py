"""A network with MOON's projection head before its classifier."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from pydantic import PositiveInt
from torch import nn

from rayfl.models.network import Network
from rayfl.models.wrapping import put_head, wrapped


def projected(
    network: str | dict[str, Any],
    num_classes: int,
    input_shape: Sequence[int],
    width: PositiveInt = 256,
    hidden: PositiveInt | None = None,
) -> Network:
    """Builds a network with a head in place of its last layer: d - `hidden` - ReLU - `width` - classes.

    The classifier follows the head: the head is part of the predictor, and the features are the projected vector.
    92 626 parameters on LeNet-5 with ten classes.

    From Li et al., "Model-Contrastive Federated Learning", CVPR 2021, and its code.

    Args:
        network: A name ("lenet5"), or a table of name and options: { name = "resnet8", width = 32 }.
        num_classes: Width of the output.
        input_shape: Shape of one input, passed to the network.
        width: Length of the projected vector.
        hidden: Units of the ReLU layer; by default d, the length of its input. The head of FedDecorr has half of it.

    Raises:
        ScenarioError: The network is unknown, an option is wrong, or it declares no feature layer (it is not a
            `Network`) or one that is not torch.nn.Linear.
    """
    module, layer = wrapped(network, num_classes, input_shape)
    d = layer.in_features
    head = OrderedDict(
        hidden=nn.Linear(d, hidden or d),
        relu=nn.ReLU(),
        projection=nn.Linear(hidden or d, width),
        classifier=nn.Linear(width, layer.out_features),
    )
    *_, module.feature_layer = put_head(module, nn.Sequential(head), ("hidden", "projection", "classifier"))
    return module
