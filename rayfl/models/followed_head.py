"""A head with a copy of the whole network that follows it: a target network, or a key encoder."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from rayfl.models.network import Network
from rayfl.models.wrapping import put_head


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
