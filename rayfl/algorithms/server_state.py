"""The state that an algorithm's round reads and changes on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rayfl.errors import RayflError
from rayfl.local.state import Scope
from rayfl.models.tensors import Slot, listed


@dataclass(frozen=True)
class RoundContext:
    """A round, as the server's part of an algorithm sees it; `Algorithm.round` receives it.

    Attributes:
        cohort: Numbers of the clients that take part, in the order drawn. Empty under `phases.N.dp`, which hides them.
        round: Position within the whole scenario, from 1.
        round_in_phase: Position within the phase, from 1.
        lr: The round's local learning rate.
        decay_round: Position as counted by `local.lr_decay_from`, from 1, for quantities that decay in step with `lr`.
        stream: The round's own random generator.
        reports: Names of the additional reports (`phases.N.report`).
        clip_norm: Under `phases.N.dp`, the bound on the norm of an answer; None without it.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import RoundContext
        >>> stream = np.random.default_rng(0)
        >>> context = RoundContext([3, 7], round=1, round_in_phase=1, lr=0.1, decay_round=1, stream=stream)
        >>> len(context.cohort), "norms" in context.reports
        (2, False)
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
    """The global model and the algorithm's state.

    A round works on a copy, which replaces the original once the round is committed. `Algorithm.round` receives it.

    Attributes:
        model: float32 [length of the model]: parameters, then buffers.
        num_params: Length of the parameters' part, including padding; `model[:num_params]` is trained.
        num_clients: Number of all clients.
        state: The algorithm's state, by declared name. Replace the arrays, never change them in place.
        declared: The scope of every name that `state` may hold.
        layout: Position of each tensor in the model vector.
        eval_model: The model to evaluate, export and pass to the next phase; None for the global model.
        scalars: Scalars that the round has reported.
        discrete: The integer and boolean buffers of the global model, by name, which are not averaged: those of the
            participant with most samples. Replace the arrays, never change them in place.
        constants: The memory of the parameters that the phase leaves out of the model vector, if an earlier phase
            trained some of them.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import ServerState
        >>> server = ServerState(np.zeros(2, np.float32), num_params=2, num_clients=10, declared={"momentum": "phase"})
        >>> server.keep("momentum", 0.9 * server.get("momentum", 0.0) + np.array([1.0, 2.0]))
        >>> server.apply_update(server.state["momentum"])
        >>> server.model
        array([1., 2.], dtype=float32)
    """

    model: np.ndarray
    num_params: int
    num_clients: int
    state: dict[str, np.ndarray] = field(default_factory=dict)
    declared: dict[str, Scope] = field(default_factory=dict)
    layout: Sequence[Slot] = ()
    eval_model: np.ndarray | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    discrete: Mapping[str, np.ndarray] = field(default_factory=dict)
    constants: np.ndarray | None = None

    def staged(self) -> ServerState:
        """Returns a copy for a round to work on."""
        return replace(self, model=np.array(self.model), state=dict(self.state), scalars={})

    def tensor(self, name: str) -> np.ndarray:
        """Returns a tensor of the model by its PyTorch name: a writable float32 view in PyTorch's shape.

        Raises:
            RayflError: The model has no tensor of this name.
        """
        for slot in self.layout:
            if name in slot.names:
                return slot.array(self.model)
        raise RayflError(f"the model has no tensor '{name}'; it has {listed([slot.name for slot in self.layout])}")

    def evaluated(self) -> np.ndarray:
        """Returns the model to evaluate, float32 [length of the model]."""
        return self.model if self.eval_model is None else self.eval_model

    def apply_update(self, step: np.ndarray, buffers: np.ndarray | None = None) -> None:
        """Steps the model, computing in float64 and rounding once.

        Args:
            step: float64 [num_params], added to the parameters.
            buffers: float64 [length of the buffers], added to the buffers; None leaves them unchanged.
        """
        self.model[: self.num_params] += step
        if buffers is not None:
            self.model[self.num_params :] += buffers

    def get(self, name: str, initial: float | np.ndarray) -> np.ndarray:
        """Returns the state of a declared name.

        Args:
            name: The name.
            initial: The value until something is kept: an array of any shape and dtype, or a number that fills float64
                [num_params].
        """
        if name in self.state:
            return self.state[name]
        return initial if isinstance(initial, np.ndarray) else np.full(self.num_params, initial)

    def keep(self, name: str, value: np.ndarray) -> None:
        """Keeps an array of real numbers or booleans, of any shape, under a declared name; from then on read-only.

        Raises:
            RayflError: The name is not declared, or the array is of something else.
        """
        if name not in self.declared:
            raise RayflError(
                f"server state '{name}' is not declared; return it, with its scope, from the algorithm's "
                f"server_state() (declared: {', '.join(sorted(self.declared)) or 'none'})"
            )
        if value.dtype.kind not in "biuf":
            raise RayflError(f"server state '{name}': {value.dtype} is no dtype of real numbers; keep it as float64")
        array = value if value.base is None and value is not self.model else value.copy()
        array.setflags(write=False)
        self.state[name] = array

    def report(self, **scalars: float) -> None:
        """Reports named scalars of this round; they appear in the metrics."""
        self.scalars |= {name: float(value) for name, value in scalars.items()}
