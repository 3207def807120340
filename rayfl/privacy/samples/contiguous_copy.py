"""A copy of a network that Opacus supports: plain layers, contiguous weights, Opacus' recurrent layers.

Opacus 1.6 silently computes wrong per-sample gradients for convolutions whose weights or inputs are channels-last, as
in a resident model, and for layers whose outputs are computed from their weights without calling them, as rayfl's fast
kernels do. Its hooks do not allow changing a layer's output in place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from opacus.layers import DPGRU, DPLSTM, DPRNN
from torch import nn
from torchvision.models.resnet import BasicBlock

from rayfl.models.fast_kernels import undo_fast_kernels
from rayfl.models.flat import FlatModel

RECURRENT: dict[type[nn.RNNBase], type[nn.Module]] = {nn.LSTM: DPLSTM, nn.GRU: DPGRU, nn.RNN: DPRNN}
"""PyTorch's recurrent layers, which run in one call, and Opacus', which run step by step; parameter names are equal."""

RECURRENT_OPTIONS = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
"""Arguments of both, kept as attributes."""


def contiguous_copy(model: FlatModel) -> nn.Module:
    """Copies the resident network, with the same names, modes and options, into its own memory.

    All parameters that the flat model can train require a gradient, whatever trains at the moment, except in layers
    with buffers, such as batch norm, which Opacus does not support.
    """
    network = copy.deepcopy(model.module)
    undo_fast_kernels(network)
    _undo_in_place(network)
    trained = {name for slot in model.layout if slot.is_parameter for name in slot.names}
    for prefix, module in network.named_modules():
        if next(module.buffers(recurse=False), None) is not None:
            trained -= {name for name, _ in module.named_parameters(prefix, recurse=False)}
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(False)
        parameter.data = _contiguous(parameter)
        parameter.grad = None
        parameter.requires_grad_(name in trained)
    for buffer in network.buffers():
        buffer.data = _contiguous(buffer)
    for name, layer in [*network.named_modules()]:
        if isinstance(layer, nn.RNNBase) and (replaced := _replaced(layer)) is not None:
            parent, _, own = name.rpartition(".")
            network.get_submodule(parent).add_module(own, replaced)
    return network


def copy_modes(source: nn.Module, target: nn.Module) -> None:
    """Puts every module of a copy into the mode, training or evaluation, of its original."""
    target.train(source.training)  # which may do more than set the modes
    for theirs, own in _pairs(source, target):
        own.training = theirs.training
        if isinstance(theirs, nn.RNNBase):
            own.train(theirs.training)
            dropout = getattr(own, "dropout_layer", None)
            if isinstance(dropout, nn.Dropout):
                dropout.p = theirs.dropout


def _pairs(source: nn.Module, target: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    for name, theirs in source.named_modules():
        yield theirs, target.get_submodule(name)


def _undo_in_place(network: nn.Module) -> None:
    for module in network.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]
        if type(module) is BasicBlock:
            module.__class__ = _BasicBlock


class _BasicBlock(BasicBlock):  # type: ignore[misc]
    """torchvision's block without its in-place addition of the shortcut."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        added: torch.Tensor = self.relu(self.bn2(self.conv2(out)) + shortcut)
        return added


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def _replaced(layer: nn.RNNBase) -> nn.Module | None:
    """Returns the Opacus layer that replaces one of PyTorch; None if there is none."""
    kind = next((own for theirs, own in RECURRENT.items() if isinstance(layer, theirs)), None)
    if kind is None or layer.proj_size:
        return None
    options = {option: getattr(layer, option) for option in RECURRENT_OPTIONS}
    if isinstance(layer, nn.RNN):
        options["nonlinearity"] = layer.nonlinearity
    replaced = kind(**options).to(next(layer.parameters()).device)
    replaced.load_state_dict(layer.state_dict())
    flags = {name: parameter.requires_grad for name, parameter in layer.named_parameters()}
    for name, parameter in replaced.named_parameters():
        parameter.requires_grad_(flags[name])
    return replaced.train(layer.training)
