"""What an algorithm's round sees and changes on the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rayfl.errors import RayflError
from rayfl.local.state import Scope
from rayfl.models.slot import Slot
from rayfl.models.tensor_names import listed


@dataclass(frozen=True)
class RoundContext:
    """A round, as the server's part of an algorithm sees it.

    Attributes:
        cohort: The clients that take part, in the order drawn.
        round: Number within the whole scenario, from 1.
        round_in_phase: Number within the phase, from 1.
        lr: The round's local learning rate.
        decay_round: Number as `local.lr_decay_from` counts it, from 1: what decays beside `lr` is in step with it.
        stream: The round's own random generator.
        reports: What the phase wants reported (`phases.N.report`).
        clip_norm: With `phases.N.dp`, the bound on the norm of an answer. The cohort stays hidden then: it is empty.
    """

    cohort: Sequence[int]
    round: int
    round_in_phase: int
    lr: float
    decay_round: int
    stream: np.random.Generator
    reports: frozenset[str] = frozenset()
    clip_norm: float | None = None


@dataclass
class ServerState:
    """The global model and what the algorithm keeps; a round works on a copy, kept once the round is committed.

    Attributes:
        model: [length of the model] float32: parameters, then buffers.
        num_params: Length of the parameters' part, padding included; `model[:num_params]` is what is trained.
        num_clients: Number of all clients.
        state: What the algorithm keeps, by declared name; arrays in it are replaced, never changed in place.
        declared: The scope of every name that `state` may hold.
        layout: Where each tensor lies in the model.
        eval_model: The model to evaluate, export and hand to the next phase, if not the global one.
        scalars: What the round reported.
    """

    model: np.ndarray
    num_params: int
    num_clients: int
    state: dict[str, np.ndarray] = field(default_factory=dict)
    declared: dict[str, Scope] = field(default_factory=dict)
    layout: Sequence[Slot] = ()
    eval_model: np.ndarray | None = None
    scalars: dict[str, float] = field(default_factory=dict)

    def staged(self) -> ServerState:
        """A copy for a round to work on."""
        return replace(self, model=np.array(self.model), state=dict(self.state), scalars={})

    def tensor(self, name: str) -> np.ndarray:
        """A tensor of the model by PyTorch's name, float32 in PyTorch's shape: a view, so that it may be written to.

        Raises:
            RayflError: The model has none of this name.
        """
        for slot in self.layout:
            if name in slot.names:
                return slot.array(self.model)
        raise RayflError(f"the model has no tensor '{name}'; it has {listed([slot.name for slot in self.layout])}")

    def evaluated(self) -> np.ndarray:
        """[length of the model] float32: the model to evaluate."""
        return self.model if self.eval_model is None else self.eval_model

    def apply_update(self, step: np.ndarray, buffers: np.ndarray | None = None) -> None:
        """Steps the model, in float64 and rounded once.

        Args:
            step: [num_params] float64, added to the parameters.
            buffers: [length of the buffers] float64, added to the buffers; None leaves them.
        """
        self.model[: self.num_params] += step
        if buffers is not None:
            self.model[self.num_params :] += buffers

    def get(self, name: str, initial: float | np.ndarray) -> np.ndarray:
        """The state of a declared name.

        Args:
            name: The name.
            initial: What there is until something is kept: an array of any shape and type, or a number that fills
                float64 [num_params].
        """
        if name in self.state:
            return self.state[name]
        return initial if isinstance(initial, np.ndarray) else np.full(self.num_params, initial)

    def keep(self, name: str, value: np.ndarray) -> None:
        """Keeps an array of any shape and type under a declared name, read-only from now on.

        Raises:
            RayflError: The name is not declared.
        """
        if name not in self.declared:
            raise RayflError(
                f"server state '{name}' is not declared; return it, with its scope, from the algorithm's "
                f"server_state() (declared: {', '.join(sorted(self.declared)) or 'none'})"
            )
        kept = value if value.base is None and value is not self.model else value.copy()
        kept.setflags(write=False)
        self.state[name] = kept

    def report(self, **scalars: float) -> None:
        """Reports named scalars of this round, which reach the metrics."""
        self.scalars |= {name: float(value) for name, value in scalars.items()}
