"""Networks made from another one, with a head in place of its last layer: MOON's, SimSiam's, MoCo's, Orchestra's."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn.functional import normalize

from rayfl.models.construction import put_head, wrapped
from rayfl.models.network import Network


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


class FollowedHead(nn.Module):
    """Maps features [n, d] to projections; contains a network that follows the one with this head.

    Attributes:
        projector: Maps the features of the network to projections.
        follower: A copy of the network with this projector as its feature layer, which maps inputs to projections.
    """

    layers: Sequence[str] = ("projector",)
    follower: nn.Module

    def __init__(self, projector: nn.Module) -> None:
        super().__init__()
        self.projector = projector

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        projections: torch.Tensor = self.projector(features)
        return projections


def put_followed(module: Network, head: FollowedHead) -> None:
    """Replaces the feature layer of a network by a head, with a follower of the network and its projector."""
    replaced = module.feature_layer
    module.set_submodule(replaced, head.projector)
    follower = copy.deepcopy(module).requires_grad_(False)
    put_head(module, head, head.layers)
    head.follower = follower
    originals = {name: _in_head(name, replaced) for name in _holders(follower)}
    module.copies = {f"{replaced}.follower.{name}": original for name, original in originals.items()}


def follow(network: nn.Module, momentum: float) -> None:
    """Moves the parameters of all copies of a network: momentum * own + (1 - momentum) * original; buffers stay."""
    assert isinstance(network, Network)
    slow: list[torch.Tensor] = []
    fast: list[torch.Tensor] = []
    for copy_, original in network.copies.items():
        slow += list(network.get_submodule(copy_).parameters())
        fast += list(network.get_submodule(original).parameters())
    torch._foreach_lerp_(slow, fast, 1 - momentum)


def _holders(network: nn.Module) -> list[str]:
    """The names of the modules that own tensors directly."""
    return [
        name
        for name, module in network.named_modules()
        if any(True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False)))
    ]


def _in_head(name: str, replaced: str) -> str:
    """The original of a module of the follower: the projector has moved into the head."""
    if name == replaced or name.startswith(f"{replaced}."):
        return f"{replaced}.projector{name.removeprefix(replaced)}"
    return name


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


def orchestra(
    network: str | dict[str, Any],
    num_classes: int,
    input_shape: Sequence[int],
    clusters: PositiveInt = 128,
    width: PositiveInt = 512,
) -> Network:
    """Builds a network for the task `orchestra`: it returns projections [n, width].

    The projector is d - `width` - `width` without biases, with batch norm after both layers (ReLU after the first, no
    weights in the second). The head also has a classifier of four rotations, the centroids of the global clusters,
    which have no gradient, and the target network. head = "fresh" drops all of these.

    From Lubana et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML 2022, and
    its code.

    Args:
        network: A name ("resnet20"), or a table of name and options.
        num_classes: Not used: there are no classes.
        input_shape: Shape of one input, passed to the network.
        clusters: Number of global clusters.
        width: Length of projections.

    Raises:
        ScenarioError: As for `projected`.
    """
    module, layer = wrapped(network, num_classes, input_shape)
    put_followed(module, OrchestraHead(layer.in_features, width, clusters))
    return module


class OrchestraHead(FollowedHead):
    """Maps features [n, d] to projections [n, width].

    Attributes:
        rotation: Maps projections to the logits of four rotations.
        centroids: [clusters, width], unit vectors.
    """

    layers = ("projector", "rotation")
    centroids: torch.Tensor

    def __init__(self, d: int, width: int, clusters: int) -> None:
        super().__init__(
            nn.Sequential(
                nn.Linear(d, width, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.Linear(width, width, bias=False),
                nn.BatchNorm1d(width, affine=False),
            )
        )
        self.rotation = nn.Linear(width, 4)
        self.register_buffer("centroids", normalize(torch.randn(clusters, width)))
