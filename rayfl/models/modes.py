"""Modes in which networks compute: evaluation with gradients, training without dropout, gradients of gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
}


def enter_training_mode(network: nn.Module) -> None:
    """Calls `train()`, unless that is PyTorch's own throughout and changes nothing: it costs a hundredth of a step."""
    for module in network.modules():
        if not module.training or type(module).train is not nn.Module.train or "train" in module.__dict__:
            network.train()
            return


@contextmanager
def evaluation_mode(*networks: nn.Module) -> Iterator[None]:
    """Puts the networks in evaluation mode within the block, and restores the mode of every module afterwards.

    Both by their own `train` and `eval`, which may do more than set the mode of every module.

    Recurrent layers stay in training mode, with their dropout set to zero, which computes the same: cuDNN does not
    support the backward pass of a recurrent layer in evaluation mode.
    """
    with _recurrent_without_dropout(networks) as recurrent:
        for network in networks:
            network.eval()
        for layer in recurrent:
            layer.train()
        yield


@contextmanager
def training_without_dropout(network: nn.Module, frozen: Sequence[str] = ()) -> Iterator[None]:
    """Puts the network in training mode without dropout within the block, and restores everything afterwards.

    Args:
        network: The network.
        frozen: Names of the modules that are in evaluation mode instead.
    """
    with _recurrent_without_dropout([network]):
        enter_training_mode(network)
        with evaluation_mode(*(network.get_submodule(name) for name in frozen)), _WithoutDropout():
            yield


@contextmanager
def _recurrent_without_dropout(networks: Sequence[nn.Module]) -> Iterator[list[nn.RNNBase]]:
    """Yields the recurrent layers, without dropout; restores their dropout and all modes afterwards."""
    modules = [module for network in networks for module in network.modules()]
    modes = {module: module.training for module in modules}
    recurrent = [(module, module.dropout) for module in modules if isinstance(module, nn.RNNBase)]
    try:
        for layer, _ in recurrent:
            layer.dropout = 0.0
        yield [layer for layer, _ in recurrent]
    finally:
        for layer, dropout in recurrent:
            layer.dropout = dropout
        for network in networks:
            network.train(modes[network])
        # and one by one, because train() changes the modes of the modules inside
        for module, training in modes.items():
            module.training = training


class _WithoutDropout(TorchFunctionMode):
    """Makes dropout functions, which dropout layers also call, return their input."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if function in DROPOUTS:
            return args[0] if args else keywords["input"]
        return function(*args, **keywords)


@contextmanager
def twice_differentiable(network: nn.Module) -> Iterator[None]:
    """Enables gradients of gradients within the block: cuDNN's recurrent layers lack them, PyTorch's have them."""
    cudnn = torch.backends.cudnn
    before = cudnn.enabled
    cudnn.enabled = before and not any(isinstance(module, nn.RNNBase) for module in network.modules())
    try:
        yield
    finally:
        cudnn.enabled = before
