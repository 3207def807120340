"""The integer and boolean buffers of the network that a client trains, for the length of its update."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from rayfl.errors import ScenarioError
from rayfl.local.client_state import ClientState

if TYPE_CHECKING:
    from torch import nn

    from rayfl.models.discrete import Discrete
    from rayfl.models.flat import FlatModel

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
        left = self._model.discrete()
        if self._hidden_by:
            for name, value in left.items():
                if not torch.equal(value, self.values[name]):
                    raise changes_under_dp(self._hidden_by, name, self._model.module)
        self.values = left

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
            kept = {name: self._state.kept_buffer(state, name) for name in self._names(chosen)}
            self.values = {**self.values, **{name: value for name, value in kept.items() if value is not None}}

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
