"""A network with MoCo's head in place of its last layer, and a key encoder that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import PositiveInt
from torch import nn

from rayfl.models.followed_head import FollowedHead, put_followed
from rayfl.models.network import Network
from rayfl.models.wrapping import wrapped


def momentum_contrast(
    network: str | dict[str, Any],
    num_classes: int,
    input_shape: Sequence[int],
    width: PositiveInt = 128,
    hidden: PositiveInt | None = None,
) -> Network:
    """Builds a network for the task `moco`: it returns queries [n, width], and contains a copy that computes keys.

    The head is d - `hidden` - ReLU - `width`. The features are its inputs; head = "fresh" drops the head and the key
    encoder. Tensors of the key encoder that a start lacks are copied from the network.

    From Chen et al., "Improved Baselines with Momentum Contrastive Learning" (MoCo v2), 2020.

    Args:
        network: A name ("resnet20"), or a table of name and options.
        num_classes: Not used: there are no classes.
        input_shape: Shape of one input, passed to the network.
        width: Length of queries and keys.
        hidden: Units of the hidden layer; by default as many as the features.

    Raises:
        ScenarioError: As for `projected`.
    """
    module, layer = wrapped(network, num_classes, input_shape)
    hidden = hidden or layer.in_features
    projector = nn.Sequential(nn.Linear(layer.in_features, hidden), nn.ReLU(), nn.Linear(hidden, width))
    put_followed(module, FollowedHead(projector))
    return module
