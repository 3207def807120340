"""Networks and layers as Opacus supports them, and faster per-sample gradients for two kinds of layers.

`contiguous_copy` gives plain layers, contiguous weights and Opacus' recurrent layers. Opacus 1.6 silently computes
wrong per-sample gradients for convolutions whose weights or inputs are channels-last, as in a resident model, and for
layers whose outputs are computed from their weights without calling them, as rayfl's fast kernels do. Its hooks do not
allow changing a layer's output in place.

`layer_gradients` takes the per-sample gradients of a layer from Opacus' samplers, or from faster ones.
`unsupported_layer` names a layer of PyTorch for which Opacus computes no per-sample gradients or wrong ones, and what
to use instead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
from opacus.layers import DPGRU, DPLSTM, DPRNN
from torch import nn
from torch.nn.grad import conv2d_weight
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm
from torchvision.models.resnet import BasicBlock

from rayfl.models.fast_kernels import undo_fast_kernels
from rayfl.models.flat import FlatModel
from rayfl.privacy.samples.released_sums import OuterProducts, SampleGradients, Whole

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


MOST_GROUPED_WEIGHTS = 2**18
"""Number of a convolution's weights above which one grouped convolution is slower than Opacus' method, on a CPU."""


Found = dict[torch.Tensor, SampleGradients]
"""By parameter."""


def layer_gradients(layer: nn.Module, inputs: list[torch.Tensor], to_outputs: torch.Tensor) -> Found:
    """Computes per-sample gradients of n samples for each of a layer's parameters that train.

    Args:
        layer: The layer, which computed the outputs in one call.
        inputs: Its inputs, each [n, ...], contiguous.
        to_outputs: [n, ...], gradients of the samples' losses with respect to its outputs, contiguous.
    """
    if type(layer) is nn.Linear and to_outputs.dim() == 2:
        by_parameter = _of_linear(layer, inputs[0], to_outputs)
    elif type(layer) is nn.Conv2d and _is_faster_grouped(layer, inputs[0]):
        by_parameter = _of_convolution(layer, inputs[0], to_outputs)
    else:
        sampler = GradSampleModule.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
        tensors = sampler(layer, inputs, to_outputs)
        if isinstance(layer, nn.Embedding) and layer.padding_idx is not None and layer.weight in tensors:
            tensors[layer.weight][:, layer.padding_idx] = 0  # as PyTorch's; Opacus' sampler ignores padding
        by_parameter = {parameter: Whole(tensor) for parameter, tensor in tensors.items()}
    return {parameter: gradients for parameter, gradients in by_parameter.items() if parameter.requires_grad}


def _of_linear(layer: nn.Linear, inputs: torch.Tensor, to_outputs: torch.Tensor) -> Found:
    gradients: Found = {layer.weight: OuterProducts(to_outputs, inputs)}
    if layer.bias is not None:
        gradients[layer.bias] = Whole(to_outputs)
    return gradients


def _is_faster_grouped(layer: nn.Conv2d, inputs: torch.Tensor) -> bool:
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return plain and inputs.device.type == "cpu" and layer.weight.numel() <= MOST_GROUPED_WEIGHTS


def _of_convolution(layer: nn.Conv2d, inputs: torch.Tensor, to_outputs: torch.Tensor) -> Found:
    """One convolution whose groups are the samples (Rochette et al., arXiv 1912.06015), without unfolding inputs."""
    samples = len(inputs)
    weights = conv2d_weight(  # type: ignore[no-untyped-call]
        inputs.reshape(1, -1, *inputs.shape[2:]),
        (samples * layer.out_channels, *layer.weight.shape[1:]),
        to_outputs.reshape(1, -1, *to_outputs.shape[2:]),
        layer.stride,
        layer.padding,
        layer.dilation,
        samples * layer.groups,
    )
    gradients: Found = {layer.weight: Whole(weights.view(samples, *layer.weight.shape))}
    if layer.bias is not None:
        gradients[layer.bias] = Whole(to_outputs.sum(dim=(2, 3)))
    return gradients


_FIX = "opacus.validators.ModuleValidator.fix in the function that builds the network replaces it"

_PADDING = {"reflect": "ReflectionPad", "replicate": "ReplicationPad", "circular": "CircularPad"}


def unsupported_layer(network: nn.Module, parameter: str = "") -> str | None:
    """Names a layer that Opacus does not support, says why, and what to use instead.

    Args:
        network: The network, whose training parameters require gradients.
        parameter: A parameter whose gradients are wrong; the layer must contain it.

    Returns:
        `'t.self_attn' is MultiheadAttention, which ...; ...`; None if no layer is known to be the reason.
    """
    for name, layer in _differentiated(network, ""):
        if (remedy := _remedy(layer)) and (not parameter or parameter.startswith(f"{name}." if name else "")):
            kind = next(
                kind.__name__ for kind in type(layer).__mro__ if kind.__module__.startswith("torch.nn.modules.")
            )
            return f"'{name}' is {kind}{remedy}"
    return None


def changes_weights(layer: nn.Module) -> bool:
    """Whether the forward pass of a layer changes its weights, as the tokens of a batch say."""
    return isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None


def _differentiated(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The modules that Opacus differentiates, each as a whole; it enters those without parameters of their own."""
    if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
        yield name, module
        if type(module) not in GradSampleModule.GRAD_SAMPLERS:
            return
    for own, child in module.named_children():
        yield from _differentiated(child, f"{name}.{own}" if name else own)


def _remedy(layer: nn.Module) -> str | None:
    """What follows the layer's kind: why it is not supported, and the remedy."""
    hooks = [hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, WeightNorm | SpectralNorm)]
    if hooks or (parametrize.is_parametrized(layer) and next(layer.buffers(), None) is not None):
        return (
            " with a normalised weight, of which Opacus supports only torch.nn.utils.parametrizations.weight_norm; use "
            "that, or leave it out"
        )
    match layer:
        case nn.MultiheadAttention():
            first = "" if layer.batch_first else "build it with batch_first = True, and "
            return f", which Opacus does not support; {first}{_FIX}"
        case nn.EmbeddingBag():
            return ", which Opacus does not support; use torch.nn.Embedding and the mean or sum over tokens"
        case nn.Bilinear():
            return ", which has two inputs, and Opacus reads one; use torch.nn.Linear on their product or concatenation"
        case nn.RNNCellBase():
            return ", which Opacus does not support; use torch.nn.RNN, GRU or LSTM"
        case nn.LSTM() if layer.proj_size:
            return " with proj_size, which Opacus does not support; leave it out, and put torch.nn.Linear after it"
        case nn.LayerNorm() if "bias" not in layer.state_dict():
            return " without bias, which Opacus does not support; use bias = True, or torch.nn.RMSNorm"
        case nn.Embedding() if layer.scale_grad_by_freq:
            return " with scale_grad_by_freq, which mixes the samples of a batch; leave that out"
        case nn.Embedding() if layer.padding_idx is not None:
            return (
                " with padding_idx, which Opacus does not support with clipping = 'ghost' or in a layer that is called "
                "twice; leave that out"
            )
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d() if layer.padding_mode != "zeros":
            pad = f"{_PADDING[layer.padding_mode]}{len(layer.kernel_size)}d"
            mode = f"padding_mode = '{layer.padding_mode}'"
            return f" with {mode}, which Opacus does not support; put torch.nn.{pad} before a layer without padding"
    return None
