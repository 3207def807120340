"""Where each tensor of a model lies in the flat vector, and which models have no such place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from rayfl.errors import ScenarioError

ALIGNMENT = 16
"""Floats. Slots start at multiples of 64 bytes: results of MKL can depend on the alignment of its inputs."""


@dataclass(frozen=True)
class Slot:
    """The place of one parameter or buffer in the flat vector.

    name: PyTorch's (`conv1.weight`). offset: in floats from the start of the vector, a multiple of 16. shape:
    PyTorch's. strides: in floats, of the tensor as it lies in the vector. is_parameter: trained by gradient; False for
    buffers and frozen parameters.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_parameter: bool

    @property
    def size(self) -> int:
        """How many values it holds."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """Where the next slot may start: offset and size, rounded up."""
        return self.offset + -(-self.size // ALIGNMENT) * ALIGNMENT

    def view(self, vector: torch.Tensor) -> torch.Tensor:
        """The slot's values in `vector` ([length of the flat vector], contiguous), in PyTorch's shape; no copy."""
        return vector[self.offset : self.offset + self.size].as_strided(self.shape, self.strides)


def layout_of(module: nn.Module, channels_last: bool) -> tuple[Slot, ...]:
    """The slots of all parameters that are trained, then of all that is carried along: frozen parameters and buffers.

    Each part is in the order of `named_parameters()` and `named_buffers()`. Buffers without a slot: integers and
    booleans (`num_batches_tracked`), which no mean over clients makes sense of, and those that are not persistent.

    Raises:
        ScenarioError: the module has nothing to train, or a tensor that cannot lie in one float32 vector: it is tied
            or shares memory, is not float32 (parameters, floating-point buffers), has no shape yet; or a module keeps
            extra state.
    """
    persistent = module.state_dict(keep_vars=True).keys()
    for name in persistent:
        if name.rpartition(".")[2] == "_extra_state":
            raise ScenarioError(f"model: '{name}' is extra state; only parameters and buffers can be sent to clients")
    parameters: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    buffers = {
        name: buffer
        for name, buffer in module.named_buffers(remove_duplicate=False)
        if name in persistent and (buffer.is_floating_point() or buffer.is_complex())
    }
    for name, parameter in parameters.items():
        _check_dtype("parameter", name, parameter)
    for name, buffer in buffers.items():
        _check_dtype("buffer", name, buffer)
    _check_not_shared({**parameters, **buffers})
    trained = {name: p for name, p in parameters.items() if p.requires_grad}
    if not trained:
        raise ScenarioError(f"model: {type(module).__name__} has no parameters to train")
    slots: list[Slot] = []
    for name, tensor in trained.items():
        slots.append(_next_slot(slots, name, tensor, channels_last, is_parameter=True))
    for name, tensor in {**parameters, **buffers}.items():
        if name not in trained:
            slots.append(_next_slot(slots, name, tensor, channels_last, is_parameter=False))
    return tuple(slots)


def _next_slot(before: list[Slot], name: str, tensor: torch.Tensor, channels_last: bool, is_parameter: bool) -> Slot:
    shape = tuple(tensor.shape)
    # Of empty tensors of the wanted format, since that is where PyTorch decides strides, on a device without memory.
    memory_format = torch.channels_last if channels_last and len(shape) == 4 else torch.contiguous_format
    strides = torch.empty(shape, device="meta", memory_format=memory_format).stride()
    return Slot(name, before[-1].end if before else 0, shape, strides, is_parameter)


def _check_dtype(kind: str, name: str, tensor: torch.Tensor) -> None:
    if nn.parameter.is_lazy(tensor):
        raise ScenarioError(
            f"model: {kind} '{name}' has no shape yet (a lazy module); give its sizes, or run one batch "
            "through the model before it is used"
        )
    if tensor.dtype != torch.float32:
        raise ScenarioError(
            f"model: {kind} '{name}' is {tensor.dtype}; parameters and floating-point buffers must be torch.float32, "
            "so convert the model with .float()"
        )


def _check_not_shared(tensors: dict[str, torch.Tensor]) -> None:
    """Refuses tied tensors: in the flat vector each has its own place, and training would part them."""
    ranges = []
    for name, tensor in tensors.items():
        if tensor.numel():
            reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            # The memory is named by its device too: two devices may use the same addresses.
            start = tensor.data_ptr()
            ranges.append((str(tensor.device), start, start + reach * tensor.element_size(), name))
    ranges.sort()
    for (device, _, end, name), (next_device, start, _, next_name) in pairwise(ranges):
        if device == next_device and start < end:
            first, second = sorted((name, next_name), key=list(tensors).index)
            raise ScenarioError(
                f"model: '{first}' and '{second}' share memory (tied weights); give each its own tensor, or "
                "compute one from the other in forward"
            )
