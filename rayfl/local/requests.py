"""Requests that an algorithm makes of a client, as data, and the objective that training minimises.

The worker's executor decides how to compute them. A client update is a generator: it yields requests, receives a copy
of each result, and returns its answer. The results belong to the algorithm, which may keep or modify them. Requests
that do not train are in `rayfl.local.queries`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from rayfl.errors import ScenarioError
from rayfl.local.queries import (
    Features,
    Gradient,
    HessianVectorProduct,
    Labels,
    Loss,
    LossAndGradient,
    Outputs,
    Rehearsal,
    check_has_samples,
)

if TYPE_CHECKING:
    import torch

    from rayfl.config.local import Train
    from rayfl.local.batches import TrainingBatch, TrainingStep
    from rayfl.local.queries import DataView


Reduction = Literal["mean", "sum", "none"]
"""How a loss is reduced: `mean` or `sum` over the batch, or `none` for one value per sample.

You receive it as the argument `reduction` of `Task.loss`.
"""


class Objective(Protocol):
    """The part of `rayfl.tasks.Task` that training reads; `Task` documents each method."""

    @property
    def reads_features(self) -> bool: ...

    def objective(self, batch: TrainingBatch) -> torch.Tensor: ...

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor: ...

    def total(self, targets: torch.Tensor) -> torch.Tensor | int: ...

    def divisor(self, targets: torch.Tensor) -> torch.Tensor | int: ...


def nonzero(total: torch.Tensor | int) -> torch.Tensor | int:
    """Returns the total, with 0 replaced by 1, without synchronising with the GPU."""
    return total + (total == 0)


T = TypeVar("T")

LossTerm = Callable[["TrainingBatch"], "torch.Tensor"]
"""Computes a scalar that is added to the loss of a batch, from the `TrainingBatch`.

You write one in `Penalty.term`, or pass one in `LocalTraining.terms`.
"""

OwnGradient = Callable[["TrainingStep"], "torch.Tensor"]
"""Computes the gradient that a step uses, float32 [num_params]. With `LossTerm` the only part of a request that is code
rather than data."""

NO_OWN_GRADIENTS = (
    "one gradient a step is noised and charged to the client's samples; use an algorithm without step_gradient"
)
"""Why `local.dp` rejects `LocalTraining.step_gradient`."""


@dataclass(frozen=True)
class Affine:
    """The gradient of a linear plus quadratic term of the local objective: linear + quadratic * (w - centre).

    Attributes:
        linear: float32 [num_params]; None is zero.
        quadratic: Weight of the quadratic part.
        centre: float32 [num_params]; None is the origin.

    Example:
        >>> import torch
        >>> from rayfl.local import Affine
        >>> Affine(quadratic=0.5, centre=torch.tensor([1.0, 1.0])).at(torch.tensor([3.0, 1.0]))
        tensor([1., 0.])
    """

    linear: torch.Tensor | None = None
    quadratic: float = 0.0
    centre: torch.Tensor | None = None

    def at(self, params: torch.Tensor) -> torch.Tensor:
        """Returns the gradient at `params`, [num_params]; never a view of `params`, but possibly `linear` itself."""
        if self.centre is not None:
            pull = (params - self.centre).mul_(self.quadratic)
            return pull if self.linear is None else pull.add_(self.linear)
        if self.linear is None:
            return params * self.quadratic
        return self.linear.add(params, alpha=self.quadratic) if self.quadratic else self.linear


@dataclass(frozen=True)
class LocalTraining:
    """Asks for local training from `start` with the phase's `local` options.

    The result is the trained model vector, float32 [length of the model].

    Attributes:
        start: float32 [length of the model]: parameters, then buffers.
        gradient: Terms added to every gradient before it is clipped.
        after_step: Terms applied as `params -= lr * term` after the optimizer step, with that step's learning rate.
        weight_decay: Coefficient of the parameters that are added to the gradient after clipping, whatever the
            optimizer does with `local.weight_decay`.
        terms: Terms added to the task's loss on every batch.
        reads_features: Whether a term reads `TrainingBatch.features`.
        step_gradient: Replaces the gradient of every step, in training mode and on the step's own batch; see
            `TrainingStep`. Clipping, weight decay and the optimizer of `local` are applied afterwards, as are
            `gradient` and `after_step`. Not for `local.dp`.
        train: The part of the network to train, as in `phases.N.train`, within what the phase trains. The optimizer is
            a fresh one, whatever was trained before.
        epochs: Passes over the samples, instead of `local.epochs` and `local.steps`.
        steps: Number of steps, over as many passes as they need, instead of `local.epochs` and `local.steps`.
        data: The samples to train on; by default all of the client's training samples.

    Raises:
        ScenarioError: The view is empty, `epochs` or `steps` is not a positive integer, or both are given.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import LocalTraining
        >>> def client_update(client, model):
        ...     trained = yield LocalTraining(model, steps=5)
        ...     return Answer(client.num_samples, delta=trained - model)
        >>> request = next(client_update(None, torch.zeros(2)))
        >>> request.steps, request.data
        (5, None)
    """

    start: torch.Tensor
    gradient: tuple[Affine, ...] = ()
    after_step: tuple[Affine, ...] = ()
    weight_decay: float = 0.0
    terms: tuple[LossTerm, ...] = ()
    reads_features: bool = False
    step_gradient: OwnGradient | None = None
    train: Train = "all"
    epochs: int | None = None
    steps: int | None = None
    data: DataView | None = None

    def __post_init__(self) -> None:
        check_has_samples(self.data)
        for name in ("epochs", "steps"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ScenarioError(f"LocalTraining.{name}: must be a whole number of at least 1, not {number!r}")
        if self.epochs is not None and self.steps is not None:
            raise ScenarioError("LocalTraining: 'epochs' and 'steps' both set the length of training; leave one out")


Request = (
    LocalTraining | Loss | Gradient | LossAndGradient | HessianVectorProduct | Features | Outputs | Labels | Rehearsal
)

ClientUpdate = Generator[Request, Any, T]
"""A client's part in an exchange, which returns an `Answer`, or in a relay, which returns the model to pass on.

You write one as a generator function that yields requests; see `Exchange` and `Algorithm`.
"""
