"""A network with SimSiam's projector and predictor in place of its last layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import PositiveInt
from torch import nn

from rayfl.models.network import Network
from rayfl.models.wrapping import put_head, wrapped


def siamese(
    network: str | dict[str, Any],
    num_classes: int,
    input_shape: Sequence[int],
    width: PositiveInt = 512,
    hidden: PositiveInt | None = None,
    predictor: PositiveInt = 128,
) -> Network:
    """Builds a network for the task `simsiam`: it returns [n, 2, width], projections z and predictions p.

    The projector is d - `hidden` - `hidden` - `width` with batch norm after every layer (ReLU except after the last,
    whose norm has no weights and whose bias is not trained), the predictor `width` - `predictor` - `width`. The
    features are the inputs of the projector, and head = "fresh" drops both.

    From Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, with the sizes in the code of FPS
    for ResNet-20 (Chen et al., ICLR 2023); for ResNet-18 it has width = 2048 and predictor = 512.

    Args:
        network: A name ("resnet20"), or a table of name and options.
        num_classes: Not used: there are no classes.
        input_shape: Shape of one input, passed to the network.
        width: Length of projections and predictions.
        hidden: Units of the projector's hidden layers; by default as many as the features.
        predictor: Units of the predictor's hidden layer.

    Raises:
        ScenarioError: As for `projected`.
    """
    module, layer = wrapped(network, num_classes, input_shape)
    put_head(module, SiameseHead(layer.in_features, hidden or layer.in_features, width, predictor), SiameseHead.layers)
    return module


class SiameseHead(nn.Module):
    """Maps features [n, d] to [n, 2, width]."""

    layers = ("projector", "predictor")

    def __init__(self, d: int, hidden: int, width: int, predictor: int) -> None:
        super().__init__()
        last = nn.Linear(hidden, width)
        last.bias.requires_grad_(False)  # the norm that follows subtracts it again
        self.projector = nn.Sequential(
            *_hidden(d, hidden), *_hidden(hidden, hidden), last, nn.BatchNorm1d(width, affine=False)
        )
        self.predictor = nn.Sequential(*_hidden(width, predictor), nn.Linear(predictor, width))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        z = self.projector(features)
        return torch.stack([z, self.predictor(z)], dim=1)


def _hidden(entering: int, leaving: int) -> tuple[nn.Module, ...]:
    return nn.Linear(entering, leaving, bias=False), nn.BatchNorm1d(leaving), nn.ReLU()
