"""Per-sample gradients of one layer's parameters: Opacus' samplers, and faster ones for two kinds of layers."""

from __future__ import annotations

import torch
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
from torch import nn
from torch.nn.grad import conv2d_weight

from rayfl.privacy.samples.sample_gradients import OuterProducts, SampleGradients, Whole

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
        found = _of_linear(layer, inputs[0], to_outputs)
    elif type(layer) is nn.Conv2d and _is_faster_grouped(layer, inputs[0]):
        found = _of_convolution(layer, inputs[0], to_outputs)
    else:
        sampler = GradSampleModule.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
        tensors = sampler(layer, inputs, to_outputs)
        if isinstance(layer, nn.Embedding) and layer.padding_idx is not None and layer.weight in tensors:
            tensors[layer.weight][:, layer.padding_idx] = 0  # as PyTorch's; Opacus' sampler ignores padding
        found = {parameter: Whole(tensor) for parameter, tensor in tensors.items()}
    return {parameter: gradients for parameter, gradients in found.items() if parameter.requires_grad}


def _of_linear(layer: nn.Linear, inputs: torch.Tensor, to_outputs: torch.Tensor) -> Found:
    found: Found = {layer.weight: OuterProducts(to_outputs, inputs)}
    if layer.bias is not None:
        found[layer.bias] = Whole(to_outputs)
    return found


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
    found: Found = {layer.weight: Whole(weights.view(samples, *layer.weight.shape))}
    if layer.bias is not None:
        found[layer.bias] = Whole(to_outputs.sum(dim=(2, 3)))
    return found
