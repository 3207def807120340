"""PyTorch's layers for which Opacus computes no per-sample gradients or wrong ones, and what to use instead."""

from __future__ import annotations

from collections.abc import Iterator

from opacus.grad_sample import GradSampleModule
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

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
