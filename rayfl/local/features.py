"""A network's features: the vectors that enter its declared feature layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.func import functional_call

from rayfl.models.flat import FlatModel


def features_and_logits(network: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Features [n, d] and logits [n, classes] of one forward pass."""
    with _entering_feature_layer(network) as seen:
        logits = network(x)
    return seen[0].flatten(1), logits


def features_of(model: FlatModel, vector: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Features [n, d] that the network has with the parameters and buffers of `vector`; in evaluation mode.

    The resident parameters stay as they are, and no gradient is kept.
    """
    training = model.module.training
    model.module.eval()
    try:
        with torch.no_grad(), _entering_feature_layer(model.module) as seen:
            functional_call(model.module, model.tensors(vector), (x,))
    finally:
        model.module.train(training)
    return seen[0].flatten(1)


@contextmanager
def _entering_feature_layer(network: nn.Module) -> Iterator[list[torch.Tensor]]:
    """What enters the layer that reads the features, pass by pass."""
    seen: list[torch.Tensor] = []
    layer = network.get_submodule(str(network.feature_layer))
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()
