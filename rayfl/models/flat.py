"""A model whose parameters, gradients and buffers lie in flat vectors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from rayfl.errors import DataError, ScenarioError
from rayfl.models.layout import Slot, check_integers, layout_of
from rayfl.models.network import Network


class FlatModel:
    """Takes a module over: its tensors become views into one float32 vector, so that models travel as vectors.

    Loading a model is one copy, a delta one subtraction, a step of SGD one `model.params.add_(model.gradient,
    alpha=-lr)`. The module is used as ever: `model.module(x)`, `loss.backward()`, `train()`, `eval()`.

    module: what was given, now on `device`. Its parameters must from now on be changed in place only; moving,
        casting or replacing them breaks the views, which `load` and `sync` notice.
    vector: [slots and padding] float32 on `device`: first the parameters that are trained, then what is carried
        along: frozen parameters (`requires_grad=False`) and persistent buffers. Slots start at multiples of 64 bytes.
        Padding between them is zero, and whoever writes vectors keeps it so.
    params, buffers: the two parts of `vector`, as views. Module order is vector order: the first modules are a prefix.
    gradient: [length of params] float32; every `param.grad` is a view into it, to which `backward` adds.
    layout: the slots, in order. num_params, num_buffer_values: how many values both parts hold, padding not counted.

    With `channels_last`, 4-D tensors are stored output-height-width-input, which is faster for convolutions on
    CPUs; shapes and names stay PyTorch's. Integer and boolean buffers (`num_batches_tracked`) stay the module's own
    tensors; the vector carries them as float32: `load` writes them into the module, `sync` back into the vector.

    Raises:
        ScenarioError: the module cannot be flattened (`layout_of` says when), or it is a `Network` that declares
            something else than it holds.
    """

    def __init__(self, module: nn.Module, device: torch.device, channels_last: bool = True) -> None:
        if isinstance(module, Network):
            module.check_declaration()
        self.layout = layout_of(module, channels_last)
        self.module = module.to(device)
        trained = [slot for slot in self.layout if slot.is_parameter]
        carried = [slot for slot in self.layout if not slot.is_parameter]
        self.num_params = sum(slot.size for slot in trained)
        self.num_buffer_values = sum(slot.size for slot in carried)
        self.vector = torch.zeros(self.layout[-1].end, device=device)
        self.params = self.vector[: trained[-1].end]
        self.buffers = self.vector[trained[-1].end :]
        self.gradient = torch.zeros_like(self.params)
        self._owners = {slot.name: _owner(module, slot.name) for slot in self.layout}
        self._gradients: list[tuple[Slot, nn.Parameter, torch.Tensor]] = []
        for slot in self.layout:
            tensor = self._tensor(slot)
            view = slot.view(self.vector)
            with torch.no_grad():
                view.copy_(tensor)
            if slot.dtype == torch.float32:
                tensor.data = view
            if slot.is_parameter:
                assert isinstance(tensor, nn.Parameter)
                self._gradients.append((slot, tensor, slot.view(self.gradient)))
        carried_along = {slot.name for slot in self.layout}
        self._not_kept = [
            (name, buffer.detach().clone()) for name, buffer in module.named_buffers() if name not in carried_along
        ]
        self.zero_gradient()

    def zero_gradient(self) -> None:
        """Sets the gradient to zero, and attaches again what `zero_grad(set_to_none=True)` detached."""
        self.gradient.zero_()
        for _, parameter, view in self._gradients:
            if parameter.grad is not view:
                parameter.grad = view

    def load(self, vector: torch.Tensor) -> None:
        """Copies `vector`, [length of self.vector] float32 on any device, into the model, integer buffers too.

        Buffers that are not persistent, which no vector carries, get the values they had in the beginning. An average
        of integer buffers is rounded to the nearest integer.

        Raises:
            ValueError: another length.
            ScenarioError: as `check`, gradients apart.
        """
        if vector.shape != self.vector.shape:
            raise ValueError(f"the vector has shape {tuple(vector.shape)}, the model's {tuple(self.vector.shape)}")
        self._check_views()
        self.vector.copy_(vector)
        for slot in self._integers():
            self._tensor(slot).copy_(slot.view(self.vector).round())
        for name, initial in self._not_kept:
            self.module.get_buffer(name).copy_(initial)

    def sync(self) -> torch.Tensor:
        """`self.vector` itself, after writing the integer buffers into it: call it to read a trained model.

        Raises:
            ScenarioError: as `check`, or an integer buffer has reached 2**24.
        """
        self.check()
        for slot in self._integers():
            tensor = self._tensor(slot)
            check_integers(slot.name, tensor)
            slot.view(self.vector).copy_(tensor)
        return self.vector

    def check(self) -> None:
        """Finds out whether the module still is what the vectors say.

        Raises:
            ScenarioError: a parameter, buffer or gradient was replaced by another tensor; it is named.
        """
        self._check_views()
        for slot, parameter, view in self._gradients:
            if parameter.grad is not view:
                what = "was set to None" if parameter.grad is None else "is another tensor"
                raise ScenarioError(
                    f"model: the gradient of '{slot.name}' {what}, so what backward adds to it is lost; clear "
                    "gradients with zero_gradient() of the flat model, not with zero_grad()"
                )

    def state_dict(self, vector: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """A copy for export: PyTorch's names, shapes and dtypes, contiguous, on the CPU.

        vector: [length of self.vector] float32, on any device; the model's own state by default.

        Raises:
            ScenarioError: as `sync`, where no vector is given.
        """
        source = (self.sync() if vector is None else vector).cpu()
        state = {}
        for slot in self.layout:
            values = slot.view(source)
            values = values if slot.dtype == torch.float32 else values.round()
            state[slot.name] = torch.empty(slot.shape, dtype=slot.dtype).copy_(values)
        return state

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """The inverse of `state_dict`; nothing is changed where it raises.

        Raises:
            DataError: names are missing or unexpected, or a tensor has another shape.
            ScenarioError: as `load`, or an integer is too large.
        """
        known = {slot.name for slot in self.layout}
        if missing := [name for name in known if name not in state]:
            raise DataError(f"state dict: lacks {_listed(missing)} of this model")
        if unexpected := [name for name in state if name not in known]:
            raise DataError(f"state dict: has {_listed(unexpected)}, which this model has not")
        vector = torch.zeros(self.vector.shape)
        for slot in self.layout:
            tensor = state[slot.name]
            if tuple(tensor.shape) != slot.shape:
                raise DataError(
                    f"state dict: '{slot.name}' has shape {tuple(tensor.shape)}, this model's has {slot.shape}"
                )
            if slot.dtype != torch.float32:
                check_integers(slot.name, tensor)
            slot.view(vector).copy_(tensor.detach())
        self.load(vector)

    def _tensor(self, slot: Slot) -> torch.Tensor:
        """The module's tensor of this name as it is now; asked anew, since a module may replace its buffers."""
        owner, name = self._owners[slot.name]
        tensor = owner._parameters.get(name) if name in owner._parameters else owner._buffers.get(name)
        if tensor is None:
            raise ScenarioError(f"model: '{slot.name}' was removed from the module")
        return tensor

    def _integers(self) -> list[Slot]:
        return [slot for slot in self.layout if slot.dtype != torch.float32]

    def _check_views(self) -> None:
        start = self.vector.data_ptr()
        for slot in self.layout:
            tensor = self._tensor(slot)
            if slot.dtype == torch.float32:
                in_place = tensor.data_ptr() == start + 4 * slot.offset and tensor.stride() == slot.strides
            else:
                in_place = tensor.dtype == slot.dtype and tuple(tensor.shape) == slot.shape
            if slot.size and not in_place:
                raise ScenarioError(
                    f"model: '{slot.name}' was replaced by another tensor, which training would change in vain; change "
                    "parameters and buffers in place (copy_, add_), and do not move or cast the module"
                )


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return module.get_submodule(path), attribute


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
