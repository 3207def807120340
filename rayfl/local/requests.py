"""What an algorithm asks of a client, as data: how it is computed is the business of the host's executor.

A client update is a generator: it yields requests, receives a copy of each result, and returns its answer. Results
belong to the algorithm, which may keep or change them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

    from rayfl.local.data_view import DataView
    from rayfl.local.training_batch import TrainingBatch

T = TypeVar("T")

LossTerm = Callable[["TrainingBatch"], "torch.Tensor"]
"""A scalar that is added to the loss of every batch: the one part of a request that is code."""


@dataclass(frozen=True)
class Affine:
    """linear + quadratic * (w - centre): the gradient of an affine-quadratic term of the local objective.

    Attributes:
        linear: [num_params] float32, or None for zero.
        quadratic: Weight of the quadratic part.
        centre: [num_params] float32; None for the origin.
    """

    linear: torch.Tensor | None = None
    quadratic: float = 0.0
    centre: torch.Tensor | None = None

    def at(self, params: torch.Tensor) -> torch.Tensor:
        """The term at `params`, [num_params]; never a view of it, but possibly `linear` itself."""
        if self.centre is not None:
            pull = (params - self.centre).mul_(self.quadratic)
            return pull if self.linear is None else pull.add_(self.linear)
        if self.linear is None:
            return params * self.quadratic
        return self.linear.add(params, alpha=self.quadratic) if self.quadratic else self.linear


@dataclass(frozen=True)
class LocalTraining:
    """Train from `start` as the phase's `local` says. The result is the trained model vector, [length of the model].

    Attributes:
        start: [length of the model] float32: parameters, then buffers.
        gradient: Terms that are added to every gradient before it is clipped.
        after_step: Terms applied as `params -= lr * term` after the optimizer step.
        weight_decay: Added to `local.weight_decay`, which clipping does not see.
        terms: Added to the task's loss on every batch.
        reads_features: Whether a term reads `TrainingBatch.features`.
        fixed_last: How many of the network's last modules stay as they are, whatever `local` says.
        data: The samples to train on; all of the client's training samples by default.
    """

    start: torch.Tensor
    gradient: tuple[Affine, ...] = ()
    after_step: tuple[Affine, ...] = ()
    weight_decay: float = 0.0
    terms: tuple[LossTerm, ...] = ()
    reads_features: bool = False
    fixed_last: int = 0
    data: DataView | None = None


@dataclass(frozen=True)
class Loss:
    """The mean loss of a model in evaluation mode, [1] float32, over `data` (by default all training samples).

    Samples are not augmented unless the view says so.
    """

    at: torch.Tensor
    data: DataView | None = None


@dataclass(frozen=True)
class Gradient:
    """The gradient of `Loss` with respect to the parameters, [num_params] float32."""

    at: torch.Tensor
    data: DataView | None = None


@dataclass(frozen=True)
class HessianVectorProduct:
    """The Hessian of `Loss` times a vector, [num_params] float32.

    Attributes:
        at: [length of the model] float32, where the Hessian is taken.
        vector: [num_params] float32.
    """

    at: torch.Tensor
    vector: torch.Tensor
    data: DataView | None = None


Request = LocalTraining | Loss | Gradient | HessianVectorProduct

ClientUpdate = Generator[Request, Any, T]
"""A client's part of an exchange (it returns an `Answer`) or of a relay (it returns the model vector it leaves)."""
