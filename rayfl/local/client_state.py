"""A client's state: the tensors that it keeps between exchanges, and its network's integer and boolean buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from rayfl.errors import RayflError, ScenarioError

if TYPE_CHECKING:
    from torch import nn

    from rayfl.models.flat import FlatModel
    from rayfl.models.tensors import Discrete


BUFFER_OF = "@"
"""Separates a state's name from that of a buffer that is kept beside it: `personal@norm.initialised`."""


class ClientState(MutableMapping[str, torch.Tensor]):
    """Named tensors that a client keeps between exchanges; an algorithm reads it as `ClientContext.state`.

    It behaves like a dictionary. Changes take effect once the round is committed. The algorithm, the task, or an option
    of local training must declare every name with its scope (`round`, `phase` or `run`); reading or setting an
    undeclared name raises RayflError.

    Args:
        tensors: The kept tensors, on the client's device; a copy for this client update.
        declared: The declared names.

    Example:
        >>> import torch
        >>> from rayfl.local import ClientState
        >>> state = ClientState({}, declared=frozenset({"control"}))
        >>> state.get("control", torch.zeros(2))
        tensor([0., 0.])
        >>> state["control"] = torch.ones(2)
        >>> list(state)
        ['control']
    """

    def __init__(self, tensors: dict[str, torch.Tensor], declared: frozenset[str]) -> None:
        self._tensors, self._declared = tensors, declared

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._tensors:
            self._check_declared(name)
        return self._tensors[name]

    def __setitem__(self, name: str, tensor: torch.Tensor) -> None:
        self._check_declared(name)
        if str(tensor.dtype).removeprefix("torch.") not in np.sctypeDict:
            raise RayflError(f"client state '{name}': {tensor.dtype} is no dtype of numpy; keep it as float32")
        self._tensors[name] = tensor

    def keep_buffer(self, name: str, buffer: str, tensor: torch.Tensor) -> None:
        """Keeps an integer or boolean buffer of the network beside a declared name."""
        self._check_declared(name)
        self._tensors[f"{name}{BUFFER_OF}{buffer}"] = tensor

    def kept_buffer(self, name: str, buffer: str) -> torch.Tensor | None:
        """Returns a buffer kept beside a declared name, if there is one."""
        self._check_declared(name)
        return self._tensors.get(f"{name}{BUFFER_OF}{buffer}")

    def __delitem__(self, name: str) -> None:
        del self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def _check_declared(self, name: str) -> None:
        if name not in self._declared:
            raise RayflError(
                f"client state '{name}' is not declared; return it, with its scope, from client_state() of the "
                f"algorithm or the task (declared: {', '.join(sorted(self._declared)) or 'none'})"
            )


Values = Mapping[str, torch.Tensor]

Chosen = Callable[["nn.Module"], Collection[str]]
"""Returns names of a network's tensors."""


class DiscreteBuffers:
    """What the client's requests start from, and what its last training left.

    Algorithms that train one model need none of this: every request continues from the values that the one before
    left. Those whose clients keep models, or parts of them, say so with `apart`, `keep` and `take`.

    Attributes:
        values: By name; replaced, never changed in place.

    Args:
        model: The resident model.
        sent: The values that the update begins with; None for the network's initial ones.
        state: The client's state.
        hidden_by: The option of differential privacy under which nothing may change; empty without one.
    """

    def __init__(
        self, model: FlatModel, sent: Values | None = None, state: ClientState | None = None, hidden_by: str = ""
    ) -> None:
        self._model, self._state, self._hidden_by = model, state, hidden_by
        self._sent = self.values = model.initial_discrete() if sent is None else sent

    def leave(self) -> None:
        """Takes the values that training left in the resident model.

        Raises:
            ScenarioError: One changed, which differential privacy does not hide.
        """
        if not self.values:
            return
        values = self._model.discrete()
        if self._hidden_by:
            for name, value in values.items():
                if not torch.equal(value, self.values[name]):
                    raise changes_under_dp(self._hidden_by, name, self._model.module)
        self.values = values

    def reset(self) -> None:
        """Continues from the network's initial values."""
        self.values = self._model.initial_discrete()

    def keep(self, state: str, chosen: Chosen | None = None) -> None:
        """Keeps the values beside a state of the client.

        Args:
            state: The state's name.
            chosen: Chooses among the values; None for all.
        """
        assert self._state is not None
        for name in self._names(chosen):
            self._state.keep_buffer(state, name, self.values[name])

    def take(self, state: str, chosen: Chosen | None = None) -> None:
        """Continues from the values kept beside a state, if there are any."""
        if self._state is not None:
            buffers = {name: self._state.kept_buffer(state, name) for name in self._names(chosen)}
            self.values = {**self.values, **{name: value for name, value in buffers.items() if value is not None}}

    @contextmanager
    def apart(self, state: str, chosen: Chosen | None = None) -> Iterator[None]:
        """Trains a model of the client's own, or such a part of one: what it leaves stays with a state of the client.

        Args:
            state: The state's name.
            chosen: Chooses the values of that part; None for all.
        """
        names, before = self._names(chosen), self.values
        self.values = {**before, **{name: self._sent[name] for name in names}}
        self.take(state, chosen)
        yield
        self.keep(state, chosen)
        self.values = {**self.values, **{name: before[name] for name in names}}

    def _names(self, chosen: Chosen | None) -> list[str]:
        if not self.values or chosen is None:
            return list(self.values)
        among = chosen(self._model.module)
        return [name for name in self.values if name in among]


def on_device(discrete: Discrete, device: torch.device) -> dict[str, torch.Tensor]:
    """Copies values to a device."""
    return {name: torch.from_numpy(np.array(values)).to(device) for name, values in discrete.items()}


def as_arrays(values: Values) -> dict[str, np.ndarray]:
    """Returns values that can be passed on to other processes; they share memory with those on the CPU."""
    return {name: value.cpu().numpy() for name, value in values.items()}


def changes_under_dp(option: str, name: str, network: nn.Module) -> ScenarioError:
    """Returns the error for a buffer that training changes under an option of differential privacy."""
    return ScenarioError(
        f"{option}: training changes buffer '{name}' of model {type(network).__name__}, and noise cannot hide integers "
        "and flags; initialise the layer beforehand ([start]), or use one without such a buffer"
    )
