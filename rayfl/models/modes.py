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
    """Calls `train()`, unless all modules are in training mode already."""
    if not all(module.training for module in network.modules()):
        network.train()


@contextmanager
def evaluation_mode(*networks: nn.Module) -> Iterator[None]:
    """Within it, the networks compute as after `eval()`; afterwards every module is in the mode it was in before.

    Recurrent layers stay in training mode, with their dropout set to zero, which computes the same: cuDNN refuses the
    backward pass of a recurrent layer in evaluation mode.
    """
    with _recurrent_without_dropout(networks) as recurrent:
        for network in networks:
            network.eval()
        for layer in recurrent:
            layer.train()
        yield


@contextmanager
def training_without_dropout(network: nn.Module, frozen: Sequence[str] = ()) -> Iterator[None]:
    """Within it, the network computes as after `train()`, but no dropout drops anything; then all is as before.

    Args:
        network: The network.
        frozen: Names of the modules that compute as after `eval()`.
    """
    with _recurrent_without_dropout([network]):
        enter_training_mode(network)
        with evaluation_mode(*(network.get_submodule(name) for name in frozen)), _WithoutDropout():
            yield


@contextmanager
def _recurrent_without_dropout(networks: Sequence[nn.Module]) -> Iterator[list[nn.RNNBase]]:
    """Within it, recurrent layers, which it gives, drop nothing; then their dropout and all modes are as before."""
    modules = [module for network in networks for module in network.modules()]
    modes = [(module, module.training) for module in modules]
    recurrent = [(module, module.dropout) for module in modules if isinstance(module, nn.RNNBase)]
    try:
        for layer, _ in recurrent:
            layer.dropout = 0.0
        yield [layer for layer, _ in recurrent]
    finally:
        for layer, dropout in recurrent:
            layer.dropout = dropout
        # One by one, for train() of a module would change the modes of those inside it.
        for module, training in modes:
            module.training = training


class _WithoutDropout(TorchFunctionMode):
    """Dropout as a function, which layers of dropout call too, returns what it is given."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if function in DROPOUTS:
            return args[0] if args else given["input"]
        return function(*args, **given)


@contextmanager
def twice_differentiable(network: nn.Module) -> Iterator[None]:
    """Within it, gradients of the network have gradients: cuDNN's recurrent layers lack them, PyTorch's own do not."""
    cudnn = torch.backends.cudnn
    before = cudnn.enabled
    cudnn.enabled = before and not any(isinstance(module, nn.RNNBase) for module in network.modules())
    try:
        yield
    finally:
        cudnn.enabled = before
