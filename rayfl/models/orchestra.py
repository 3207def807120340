"""A network with Orchestra's projector in place of its last layer, its centroids and its target network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn.functional import normalize

from rayfl.models.followed_head import FollowedHead, put_followed
from rayfl.models.network import Network
from rayfl.models.wrapping import wrapped


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
