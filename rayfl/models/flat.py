"""A model whose parameters, gradients and buffers lie in flat vectors."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from rayfl.errors import DataError, ScenarioError
from rayfl.models.layout import Slot, layout_of
from rayfl.models.network import Network


class FlatModel:
    """Takes a module over: its tensors become views into one float32 vector, so that models travel as vectors.

    Loading a model is one copy, a delta one subtraction, a step of SGD one `model.params.add_(model.gradient,
    alpha=-lr)`. The module is used as ever: `model.module(x)`, `loss.backward()`, `train()`, `eval()`.

    module: what was given, now on `device`. Its parameters must from now on be changed in place only; moving,
        casting or replacing them breaks the views, which `load` and `check` notice.
    vector: [slots and padding] float32 on `device`: first the parameters that are trained, then what is carried
        along: frozen parameters (`requires_grad=False`) and persistent floating-point buffers. Slots start at multiples
        of 64 bytes. Padding between them is zero, and whoever writes vectors keeps it so.
    params, buffers: the two parts of `vector`, as views. Module order is vector order: the first modules are a prefix.
    gradient: [length of params] float32; every `param.grad` is a view into it, to which `backward` adds.
    layout: the slots, in order. num_params, num_buffer_values: how many values both parts hold, padding not counted.

    With `channels_last`, 4-D tensors are stored output-height-width-input, which is faster for convolutions on
    CPUs; shapes and names stay PyTorch's. Buffers that no vector carries, integers (`num_batches_tracked`) and those
    that are not persistent, get their initial values with every `load`: nothing of a visit is left behind in them.

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
            tensor.data = view
            if slot.is_parameter:
                assert isinstance(tensor, nn.Parameter)
                self._gradients.append((slot, tensor, slot.view(self.gradient)))
        in_vector = {slot.name for slot in self.layout}
        self._fixed = {
            name: buffer.detach().clone() for name, buffer in module.named_buffers() if name not in in_vector
        }
        self._exported = list(module.state_dict())
        self._twins: list[nn.Module] = []
        self.zero_gradient()

    def zero_gradient(self) -> None:
        """Sets the gradient to zero, and attaches again what `zero_grad(set_to_none=True)` detached."""
        self.gradient.zero_()
        for _, parameter, view in self._gradients:
            if parameter.grad is not view:
                parameter.grad = view

    @contextmanager
    def training_only(self, modules: Collection[str]) -> Iterator[list[slice]]:
        """Within it, only the parameters of these submodules get gradients; autograd computes no others.

        Yields the parts of `params` and `gradient` that they make up, in order; neighbours are one part.
        """
        parts: list[slice] = []
        try:
            for slot, parameter, _ in self._gradients:
                trains = any(slot.name.startswith(f"{module}.") for module in modules)
                parameter.requires_grad_(trains)
                if trains and parts and parts[-1].stop == slot.offset:
                    parts[-1] = slice(parts[-1].start, slot.end)
                elif trains:
                    parts.append(slice(slot.offset, slot.end))
            yield parts
        finally:
            for _, parameter, _ in self._gradients:
                parameter.requires_grad_(True)

    def frozen(self, vector: torch.Tensor, number: int = 0) -> nn.Module:
        """The module's twin in evaluation mode, without gradients, whose tensors are views into `vector`.

        number: there is one twin for each, 0, 1, ..., made once; asking for it again is what changes its tensors.
        """
        while len(self._twins) <= number:
            self._twins.append(copy.deepcopy(self.module).requires_grad_(False).eval())
            self._twins[-1].zero_grad(set_to_none=True)
        twin = self._twins[number]
        tensors: dict[str, torch.Tensor] = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
        for slot in self.layout:
            tensors[slot.name].data = slot.view(vector)
        return twin

    def load(self, vector: torch.Tensor) -> None:
        """Copies `vector`, [length of self.vector] float32 on any device, into the model.

        Raises:
            ValueError: another length.
            ScenarioError: as `check`, gradients apart.
        """
        if vector.shape != self.vector.shape:
            raise ValueError(f"the vector has shape {tuple(vector.shape)}, the model's {tuple(self.vector.shape)}")
        self._check_views()
        self.vector.copy_(vector)
        for name, initial in self._fixed.items():
            self.module.get_buffer(name).copy_(initial)

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
        """A copy for export: PyTorch's names, order, shapes and dtypes, contiguous, on the CPU.

        vector: [length of self.vector] float32, on any device; the model's own by default.
        """
        source = (self.vector if vector is None else vector).cpu()
        values = self._fixed | {slot.name: slot.view(source) for slot in self.layout}
        return {
            name: torch.empty(values[name].shape, dtype=values[name].dtype).copy_(values[name])
            for name in self._exported
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """The inverse of `state_dict`; nothing is changed where it raises.

        Raises:
            DataError: names are missing or unexpected, or a tensor has another shape.
            ScenarioError: as `load`.
        """
        if missing := [name for name in self._exported if name not in state]:
            raise DataError(f"state dict: lacks {_listed(missing)} of this model")
        if unexpected := [name for name in state if name not in self._exported]:
            raise DataError(f"state dict: has {_listed(unexpected)}, which this model has not")
        vector = torch.zeros(self.vector.shape)
        known = self._fixed | {slot.name: slot.view(vector) for slot in self.layout}
        for name, tensor in state.items():
            if tensor.shape != known[name].shape:
                raise DataError(
                    f"state dict: '{name}' has shape {tuple(tensor.shape)}, this model's has {tuple(known[name].shape)}"
                )
        for name, tensor in state.items():
            known[name].copy_(tensor.detach())
        self.load(vector)

    def _tensor(self, slot: Slot) -> torch.Tensor:
        """The module's tensor of this name as it is now; asked anew, since a module may replace its buffers."""
        owner, name = self._owners[slot.name]
        tensor = owner._parameters.get(name) if name in owner._parameters else owner._buffers.get(name)
        if tensor is None:
            raise ScenarioError(f"model: '{slot.name}' was removed from the module")
        return tensor

    def _check_views(self) -> None:
        start = self.vector.data_ptr()
        for slot in self.layout:
            tensor = self._tensor(slot)
            in_place = tensor.data_ptr() == start + 4 * slot.offset and tensor.stride() == slot.strides
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
