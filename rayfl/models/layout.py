"""The places of the tensors of a model in its flat vector and in that of its constants, and checks of both."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from rayfl.errors import ScenarioError
from rayfl.models.tensors import NUM_BYTES, Slot, followed

COUNTER = "num_batches_tracked"


def layout_of(
    module: nn.Module, channels_last: bool, constants: Collection[str] | None = None
) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Lays out all trained parameters, then frozen parameters that are no constants, and buffers.

    Each part is in the order of `named_parameters()` and `named_buffers()`; a tied tensor has the place of its first
    name. Buffers without a slot are integers and booleans, for which a mean over clients makes no sense, those that are
    not persistent, and those with infinities (attention masks), which have no differences.

    Args:
        module: The module.
        channels_last: Whether 4-D tensors are stored channels-last.
        constants: Names of the parameters that are constants, any of a tied one's; by default those of
            `frozen_parameters`.

    Returns:
        The slots of the vector, and those of the constants, each in its type.

    Raises:
        ScenarioError: The module has nothing to train, or has a tensor that does not fit: it shares memory with another
            tensor, is not float32 (buffers, and parameters that are no constants) or not a floating-point number
            (constants), or has no shape or no values yet; or a module keeps extra state.
    """
    persistent = module.state_dict(keep_vars=True).keys()
    for name in persistent:
        if name.rpartition(".")[2] == "_extra_state":
            raise ScenarioError(f"model: '{name}' is extra state; only parameters and buffers can be sent to clients")
    for name, buffer in module.named_buffers():
        if buffer.is_quantized:
            raise ScenarioError(
                f"model: buffer '{name}' is {buffer.dtype}; keep its integers in a buffer of torch.int8"
            )
    parameters: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    buffers = {
        name: buffer
        for name, buffer in module.named_buffers(remove_duplicate=False)
        if name in persistent and (buffer.is_floating_point() or buffer.is_complex())
    }
    chosen = frozen_parameters(module) if constants is None else constants
    fixed = {id(parameters[name]) for name in chosen} - {id(buffer) for buffer in buffers.values()}
    constant = {name for name, one in parameters.items() if id(one) in fixed}
    for name, parameter in parameters.items():
        _check_values("parameter", name, parameter, NUM_BYTES if name in constant else ("float32",))
        if not parameter.requires_grad and name not in constant and parameter.isinf().any():
            raise ScenarioError(
                f"model: frozen parameter '{name}' holds infinities, which have no differences to sum over clients; "
                "make it a buffer (register_buffer)"
            )
    for name, buffer in buffers.items():
        _check_values("buffer", name, buffer)
    buffers = {name: buffer for name, buffer in buffers.items() if buffer.isfinite().all()}
    names: dict[int, list[str]] = {}
    for name, tensor in {**parameters, **buffers}.items():
        names.setdefault(id(tensor), []).append(name)
    tensors = {same[0]: {**parameters, **buffers}[same[0]] for same in names.values()}
    _check_not_shared(tensors)
    trained = {
        name: p for name, p in tensors.items() if p.requires_grad and name in parameters and name not in constant
    }
    if not trained:
        raise ScenarioError(f"model: {type(module).__name__} has no parameters to train")
    slots: list[Slot] = []
    beside: list[Slot] = []
    for name, tensor in (*trained.items(), *(item for item in tensors.items() if item[0] not in trained)):
        among, dtype = (beside, name_of(tensor.dtype)) if name in constant else (slots, "float32")
        offset, shape = among[-1].end if among else 0, tuple(tensor.shape)
        strides = _strides(shape, channels_last)
        among.append(Slot(name, offset, shape, strides, name in trained, tuple(names[id(tensor)][1:]), dtype))
    return tuple(slots), tuple(beside)


def frozen_parameters(module: nn.Module) -> set[str]:
    """Returns the names of the parameters that need no gradient and follow no others (`Network.copies`)."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    following = {id(one) for name, one in parameters.items() if followed(name, getattr(module, "copies", {}))}
    return {name for name, one in parameters.items() if not one.requires_grad and id(one) not in following}


def name_of(dtype: torch.dtype) -> str:
    """The name of a type: `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def batch_norm_counters(module: nn.Module) -> set[str]:
    """Returns the names of the counters of PyTorch's batch and instance norms that nothing reads.

    With `momentum = None`, the counter weighs a batch against those before it.
    """
    return {
        f"{prefix}.{COUNTER}".removeprefix(".")
        for prefix, layer in module.named_modules(remove_duplicate=False)
        if isinstance(layer, _NormBase) and layer.momentum is not None
    }


def _strides(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    # PyTorch chooses the strides of an empty tensor in this format, here on a device without memory
    memory_format = torch.channels_last if channels_last and len(shape) == 4 else torch.contiguous_format
    return torch.empty(shape, device="meta", memory_format=memory_format).stride()


def _check_values(kind: str, name: str, tensor: torch.Tensor, allowed: Collection[str] = ("float32",)) -> None:
    if nn.parameter.is_lazy(tensor):
        raise ScenarioError(
            f"model: {kind} '{name}' has no shape yet (a lazy module); set its sizes, or run one batch through the "
            "model first"
        )
    if tensor.is_meta:
        raise ScenarioError(
            f"model: {kind} '{name}' is on the meta device, without values; build the model on the CPU, or give it "
            "values with .to_empty(device='cpu') and an initialisation"
        )
    if name_of(tensor.dtype) not in allowed:
        if tensor.is_complex():
            remedy = "keep torch.view_as_real(...) of it, and use torch.view_as_complex(...) in forward"
        elif tensor.is_floating_point():
            remedy = "convert the model with .float()"
        else:
            remedy = "make it a buffer"
        raise ScenarioError(
            f"model: {kind} '{name}' is {tensor.dtype}; parameters and floating-point buffers must be torch.float32, "
            f"so {remedy}"
        )


def _check_not_shared(tensors: dict[str, torch.Tensor]) -> None:
    """Rejects tensors that overlap in memory: in the flat vector each has its own place."""
    ranges = []
    for name, tensor in tensors.items():
        if tensor.numel():
            reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            # the device is part of the range: two devices may use the same addresses
            start = tensor.data_ptr()
            ranges.append((str(tensor.device), start, start + reach * tensor.element_size(), name))
    ranges.sort()
    for (device, _, end, name), (next_device, start, _, next_name) in pairwise(ranges):
        if device == next_device and start < end:
            first, second = sorted((name, next_name), key=list(tensors).index)
            raise ScenarioError(
                f"model: '{first}' and '{second}' share memory but are two tensors; make both the same Parameter "
                "(tied weights), give each its own memory, or compute one from the other in forward"
            )
