"""Modes in which networks compute: evaluation with gradients, and gradients that have gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(*networks: nn.Module) -> Iterator[None]:
    """Within it, the networks compute as after `eval()`; afterwards every module is in the mode it was in before.

    Recurrent layers stay in training mode, with their dropout set to zero, which computes the same: cuDNN refuses the
    backward pass of a recurrent layer in evaluation mode.
    """
    modules = [module for network in networks for module in network.modules()]
    modes = [(module, module.training) for module in modules]
    recurrent = [(module, module.dropout) for module in modules if isinstance(module, nn.RNNBase)]
    try:
        for network in networks:
            network.eval()
        for layer, _ in recurrent:
            layer.dropout = 0.0
            layer.train()
        yield
    finally:
        for layer, dropout in recurrent:
            layer.dropout = dropout
        # One by one, for train() of a module would change the modes of those inside it.
        for module, training in modes:
            module.training = training


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
