"""A model with its parameters, gradients and buffers in flat vectors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import ne
from typing import TypeVar

import torch
from torch import nn

from rayfl.errors import RayflError, ScenarioError
from rayfl.models.constants import Constants, changes_constant
from rayfl.models.frozen_copy import FrozenCopy, freeze
from rayfl.models.layout import batch_norm_counters, layout_of
from rayfl.models.network import Network
from rayfl.models.tensors import Slot
from rayfl.models.transfer import same_values, transfer

T = TypeVar("T")
Names = Collection[str] | None


class FlatModel:
    """A module whose tensors are views into one float32 vector.

    Loading a model is one copy, a delta one subtraction, a step of SGD one `model.params.add_(model.gradient,
    alpha=-lr)`. You use the module as usual: `model.module(x)`, `loss.backward()`, `train()`, `eval()`.

    Persistent integer and boolean buffers (`discrete`) are not in the vector: `load` takes their values beside it.
    Batch norm's counters (`num_batches_tracked`), buffers that are not persistent and those that begin with infinities
    are reset to their initial values by every `load`, so a client update leaves nothing behind in them. Parameters
    that do not train are `constants`, which nothing may change; `load` and `check` detect it.

    Attributes:
        module: The given module, now on `device`. From now on, change its parameters only in place; moving, casting or
            replacing them breaks the views, which `load` and `check` detect.
        vector: [slots and padding] float32 on `device`. Trained parameters come first, followed by those that follow
            others (`Network.copies`) and persistent floating-point buffers. Slots start at multiples of 64 bytes. The
            padding between them is zero and must stay so.
        params: The first part of `vector`, as a view. Module order is vector order: the first modules are a prefix.
        buffers: The second part of `vector`, as a view.
        gradient: [length of params] float32. Every `param.grad` is a view into it, to which `backward` adds.
        layout: The slots, in order.
        constants: The parameters beside the vector.
        channels_last: Whether 4-D tensors are stored channels-last.
        names: The names of the state dict, in its order.
        discrete_names: The names of the persistent integer and boolean buffers, without batch norm's counters.
        counters: The names of batch norm's counters.
        num_params: Number of values in `params`, without padding.
        num_buffer_values: Number of values in `buffers`, without padding.

    Args:
        module: The module, which is not copied.
        device: The device for the vector and the module.
        channels_last: Whether to store 4-D tensors output-height-width-input, which is faster for convolutions on CPUs;
            shapes and names stay those of PyTorch.
        constants: Names of the parameters that do not train; by default those with `requires_grad=False` that follow no
            others (`Network.copies`).

    Raises:
        ScenarioError: As `layout_of`; or the declaration of a `Network` does not match its modules.
    """

    def __init__(
        self, module: nn.Module, device: torch.device, channels_last: bool = True, constants: Names = None
    ) -> None:
        if isinstance(module, Network):
            module.check_declaration()
        self.layout, beside = layout_of(module, channels_last, constants)
        self.channels_last, self.module = channels_last, module.to(device)
        self.constants = Constants(beside, dict(module.named_parameters(remove_duplicate=False)), device)
        trained = [slot for slot in self.layout if slot.is_parameter]
        others = [slot for slot in self.layout if not slot.is_parameter]
        self.num_params = sum(slot.size for slot in trained)
        self.num_buffer_values = sum(slot.size for slot in others)
        self.vector = torch.zeros(self.layout[-1].end, device=device)
        self.params = self.vector[: trained[-1].end]
        self.buffers = self.vector[trained[-1].end :]
        self.gradient = torch.zeros_like(self.params)
        self._owners = {name: _owner(module, name) for name in self.slots()}
        self._gradients: list[tuple[Slot, nn.Parameter, torch.Tensor]] = []
        for slot in self.layout:
            tensor, view = self._tensor(slot.name), slot.view(self.vector)
            view.copy_(tensor.detach())
            tensor.data = view
            if slot.is_parameter:
                assert isinstance(tensor, nn.Parameter)
                # `data`: a view that counts its own changes, not those of the whole vector; see `reached`
                self._gradients.append((slot, tensor, slot.view(self.gradient).data))
        self.names = tuple(module.state_dict())
        self.counters = batch_norm_counters(module)
        buffers = dict(module.named_buffers(remove_duplicate=False))
        self._beside = {name: buffer for name, buffer in buffers.items() if name not in self._owners}
        for buffer in self._beside.values():
            buffer.data = buffer.contiguous()  # values of an expanded one cannot be set
        self._owners |= {name: _owner(module, name) for name in self._beside}
        self._fixed = {name: buffer.detach().clone() for name, buffer in self._beside.items()}
        discrete = {name for name, buffer in self._beside.items() if not buffer.is_floating_point()} - {*self.counters}
        self.discrete_names = tuple(name for name in self.names if name in discrete)
        self._compared = [name for name in self._beside if name not in self.counters]
        self._first_buffer = min(
            (slot.offset for slot in self.layout if slot.name in buffers), default=len(self.vector)
        )
        self._frozen_pool: list[nn.Module] = []
        self._writes = [0] * len(self._gradients)
        self.zero_gradient()

    def zero_gradient(self) -> None:
        """Sets the gradient to zero, and reattaches gradients that `zero_grad(set_to_none=True)` detached."""
        self.gradient.zero_()
        for _, parameter, view in self._gradients:
            if parameter.grad is not view:
                parameter.grad = view

    def reached(self) -> tuple[bool, ...]:
        """Whether `backward` has added to the gradient of each trained parameter, in vector order, since the last call.

        This tells a parameter that no loss has reached, whose `grad` would be None in an ordinary module, from one
        whose gradient is zero.
        """
        before, self._writes = self._writes, [view._version for _, _, view in self._gradients]
        return tuple(map(ne, before, self._writes))

    def dot(self, gradients: Sequence[torch.Tensor], vector: torch.Tensor) -> torch.Tensor:
        """The scalar product of gradients, one per trained parameter in order, with a vector [length of params]."""
        views = [slot.view(vector) for slot, _, _ in self._gradients]
        return torch.stack([(own * view).sum() for own, view in zip(gradients, views, strict=True)]).sum()

    @property
    def trained_parameters(self) -> list[nn.Parameter]:
        """The trained parameters, in vector order."""
        return [parameter for _, parameter, _ in self._gradients]

    @property
    def training_slots(self) -> list[Slot]:
        """The slots of the parameters that currently have gradients, in order; see `training_only`."""
        return [slot for slot, parameter, _ in self._gradients if parameter.requires_grad]

    def slots_of(self, names: Collection[str]) -> list[Slot]:
        """The slots of some parameters and buffers, in order.

        Args:
            names: Their names; any name of a tied tensor selects it.
        """
        return [slot for slot in self.layout if any(name in names for name in slot.names)]

    def parts_of(self, names: Collection[str] | None) -> list[slice]:
        """The parts of `params` and `gradient` that belong to some parameters, in order; adjacent parts are merged.

        Args:
            names: Names of the parameters; any name of a tied one selects it. None for all.
        """
        parts: list[slice] = []
        for slot, _, _ in self._gradients:
            if names is not None and not any(name in names for name in slot.names):
                continue
            if parts and parts[-1].stop == slot.offset:
                parts[-1] = slice(parts[-1].start, slot.end)
            else:
                parts.append(slice(slot.offset, slot.end))
        return parts

    @contextmanager
    def training_only(self, names: Collection[str]) -> Iterator[list[slice]]:
        """Restricts gradients to some parameters; autograd computes no others.

        Args:
            names: Names of the parameters; a tied one trains if any of its names is among them.

        Yields:
            Their parts of the vectors; see `parts_of`.
        """
        before = [parameter.requires_grad for parameter in self.trained_parameters]
        try:
            for slot, parameter, _ in self._gradients:
                if not any(name in names for name in slot.names):
                    parameter.requires_grad_(False)
            yield self.parts_of(names)
        finally:
            for parameter, required in zip(self.trained_parameters, before, strict=True):
                parameter.requires_grad_(required)

    @contextmanager
    def elsewhere(self, params: torch.Tensor) -> Iterator[None]:
        """Gives the parameters other values within the block, and restores all values afterwards, including buffers.

        Args:
            params: [length of params] float32, which is not changed.
        """
        vector = self.vector.clone()
        # a module may have replaced a buffer by one of another shape, such as a mask that it computed
        beside = [(name, tensor, tensor.detach().clone()) for name in self._fixed for tensor in [self._tensor(name)]]
        try:
            self.params.copy_(params)
            yield
        finally:
            self.vector.copy_(vector)
            for name, tensor, values in beside:
                owner, attribute = self._owners[name]
                owner._buffers[attribute] = tensor
                tensor.detach().copy_(values)

    def frozen_copy(self, vector: torch.Tensor, discrete: Mapping[str, torch.Tensor] | None = None) -> FrozenCopy:
        """Makes a network with the values of another vector, in evaluation mode and without gradients.

        Args:
            vector: [length of self.vector] float32 on the device of the model, which is not copied.
            discrete: The values of `discrete_names`; by default the initial ones.

        Returns:
            A handle. Release it, by `with` or `release()`, to let its network be reused.

        Raises:
            ValueError: The vector has another length.
        """
        module = self._frozen_pool.pop() if self._frozen_pool else freeze(self.module, self.constants.parameters)
        frozen = FrozenCopy(module, self.layout, {**self._fixed, **(discrete or {})}, self._frozen_pool)
        frozen.load(vector)
        return frozen

    def load(self, vector: torch.Tensor, discrete: Mapping[str, torch.Tensor] | None = None) -> None:
        """Copies a vector into the model.

        Args:
            vector: [length of self.vector] float32 on any device.
            discrete: The values of `discrete_names`; by default the initial ones.

        Raises:
            ValueError: The vector has another length.
            RayflError: It does not hold floating point numbers.
            ScenarioError: As for `check`, except gradients.
        """
        if not vector.is_floating_point():
            raise RayflError(f"a model of dtype {vector.dtype} has lost its fractions; make it floating point numbers")
        if vector.shape != self.vector.shape:
            raise ValueError(f"the vector has shape {tuple(vector.shape)}, the model's {tuple(self.vector.shape)}")
        self._check_views()
        self.vector.copy_(vector)
        self._restore({**self._fixed, **discrete} if discrete else self._fixed)

    def discrete(self) -> dict[str, torch.Tensor]:
        """Returns copies of the current values of `discrete_names`.

        Raises:
            ScenarioError: One was replaced by a tensor of another shape or type.
        """
        values = {}
        for name in self.discrete_names:
            tensor, own = self._tensor(name), self._beside[name]
            if tensor.shape != own.shape or tensor.dtype != own.dtype:
                raise ScenarioError(
                    f"model: buffer '{name}' became {tensor.dtype} {list(tensor.shape)}, but was {own.dtype} "
                    f"{list(own.shape)}; a buffer must keep its shape and type"
                )
            values[name] = tensor.detach().to(own.device, copy=True)
        return values

    def initial_discrete(self) -> dict[str, torch.Tensor]:
        """Returns the initial values of `discrete_names`, which must not be changed."""
        return {name: self._fixed[name] for name in self.discrete_names}

    @property
    def constant_names(self) -> tuple[str, ...]:
        """The names of the persistent floating-point buffers that begin with infinities or NaN and never change."""
        return tuple(name for name in self.names if name in self._fixed and self._fixed[name].is_floating_point())

    def initial(self, name: str) -> torch.Tensor:
        """Returns the initial values of a buffer outside the vector, which must not be changed."""
        return self._fixed[name]

    def unchanged(
        self, items: Iterable[T], vector: torch.Tensor, discrete: Mapping[str, torch.Tensor] | None = None
    ) -> Iterator[T]:
        """Yields batches to evaluate; a batch that changes a buffer does so for itself alone.

        So does one by which a layer initialises itself, parameters and all. Only buffers are looked at after every
        batch; a change of one that is not persistent, such as a mask that the first batch computes, is undone without
        a look at the parameters once it has left them alone.

        Args:
            items: The batches.
            vector: What was loaded into the model.
            discrete: Likewise.
        """
        device, values = self.vector.device, {**self._fixed, **(discrete or {})}
        beside = {name: values[name].to(device) for name in self._compared}
        buffers, caches = vector[self._first_buffer :].to(device), set[str]()
        parameters = [] if beside.keys() <= {*self.names} else list(self.module.parameters())
        for item in items:
            versions = [parameter._version for parameter in parameters]
            yield item
            changed = {name: value for name, value in beside.items() if not same_values(self._tensor(name), value)}
            same = same_values(self.vector[self._first_buffer :], buffers)
            if same and changed and changed.keys().isdisjoint(self.names):
                same = changed.keys() <= caches and versions == [parameter._version for parameter in parameters]
                if same or same_values(self.vector, vector.to(device)):
                    caches |= changed.keys()
                    self._restore(changed)
                    continue
            if changed or not same:
                self.load(vector, discrete)

    def check(self) -> None:
        """Checks that the module's tensors are still views into the vectors.

        Raises:
            ScenarioError: A parameter, buffer or gradient was replaced by another tensor; the message names it.
        """
        self._check_views()
        for slot, parameter, view in self._gradients:
            if parameter.grad is not view:
                what = "was set to None" if parameter.grad is None else "is another tensor"
                raise ScenarioError(
                    f"model: the gradient of '{slot.name}' {what}, so backward() has no effect on it; clear "
                    "gradients with zero_gradient() of the flat model, not with zero_grad()"
                )

    def changed_constants(self) -> Iterator[str]:
        """Yields the names of the constants that something has written to or replaced."""
        return self.constants.changed(self._tensor)

    def state_dict(
        self, vector: torch.Tensor | None = None, discrete: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """Copies a model for export, with PyTorch's names, order, shapes and dtypes, contiguous, on the CPU.

        Args:
            vector: [length of self.vector] float32, on any device; by default that of the model.
            discrete: The values of `discrete_names`; by default those of the model.
        """
        beside = {**self._fixed, **(self.discrete() if discrete is None else discrete)}
        values = beside | self.views((self.vector if vector is None else vector).cpu(), self.constants.memory.cpu())
        return {
            name: torch.empty(values[name].shape, dtype=values[name].dtype).copy_(values[name]) for name in self.names
        }

    def shapes(self) -> dict[str, torch.Size]:
        """Returns the shape of every tensor of the state dict, by name and in its order."""
        shapes = {name: torch.Size(slot.shape) for name, slot in self.slots().items()}
        return {name: shapes[name] if name in shapes else self._fixed[name].shape for name in self.names}

    def slots(self) -> dict[str, Slot]:
        """The slots of the vector and of the constants, by any of their names."""
        return {name: slot for slot in (*self.layout, *self.constants.slots) for name in slot.names}

    def views(self, vector: torch.Tensor, constants: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors in a vector and in the memory of constants, by any of their names."""
        parts = ((self.layout, vector), (self.constants.slots, constants))
        return {name: slot.view(memory) for slots, memory in parts for slot in slots for name in slot.names}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Loads an export of `state_dict`; changes nothing if it raises. `transfer` offers less strict rules.

        Raises:
            DataError: Names are missing or unexpected, or a tensor has another shape.
            ScenarioError: As for `load`.
        """
        taken = transfer(state, self)
        self._check_views()
        for name in self.counters & state.keys():
            self._fixed[name].copy_(state[name])
        self.constants.hold(taken.constants)
        self.load(taken.vector, taken.discrete)

    def _restore(self, values: Mapping[str, torch.Tensor]) -> None:
        """Sets buffers outside the vector, also where a module has replaced one by another tensor."""
        for name, value in values.items():
            owner, attribute = self._owners[name]
            own = owner._buffers[attribute] = self._beside[name]
            own.copy_(value)

    def _tensor(self, name: str) -> torch.Tensor:
        """Looks up the tensor each time, since a module may replace its buffers."""
        owner, attribute = self._owners[name]
        held = owner._parameters if attribute in owner._parameters else owner._buffers
        tensor = held.get(attribute)
        if tensor is None:
            raise ScenarioError(f"model: '{name}' was removed from the module")
        return tensor

    def _check_views(self) -> None:
        start, bytes_each = self.vector.data_ptr(), self.vector.element_size()
        for slot in self.layout:
            for name in slot.names:
                tensor = self._tensor(name)
                in_place = tensor.data_ptr() == start + bytes_each * slot.offset and tensor.stride() == slot.strides
                if slot.size and not in_place:
                    raise ScenarioError(
                        f"model: '{name}' was replaced by another tensor, so training it would have no effect; change "
                        "parameters and buffers in place (copy_, add_), and do not move or cast the module"
                    )
        for name in self.changed_constants():
            raise ScenarioError(changes_constant(name))


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return module.get_submodule(path), attribute
