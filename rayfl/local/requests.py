"""Requests that an algorithm makes of a client, as data; the host's executor decides how to compute them.

A client update is a generator: it yields requests, receives a copy of each result, and returns its answer. The results
belong to the algorithm, which may keep or modify them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import torch

    from rayfl.config.local import Train
    from rayfl.local.data_view import DataView
    from rayfl.local.training_batch import TrainingBatch
    from rayfl.local.training_step import TrainingStep

T = TypeVar("T")

LossTerm = Callable[["TrainingBatch"], "torch.Tensor"]
"""Computes a scalar that is added to the loss of a batch."""

OwnGradient = Callable[["TrainingStep"], "torch.Tensor"]
"""Computes what a step takes for the gradient, [num_params] float32. With `LossTerm` the only part of a request that is
code, not data."""

NO_OWN_GRADIENTS = (
    "one gradient a step is noised and charged to the client's samples; use an algorithm without step_gradient"
)
"""Why `local.dp` refuses `LocalTraining.step_gradient`."""


@dataclass(frozen=True)
class Affine:
    """The gradient of a linear plus quadratic term of the local objective: linear + quadratic * (w - centre).

    Attributes:
        linear: [num_params] float32; None is zero.
        quadratic: Weight of the quadratic part.
        centre: [num_params] float32; None is the origin.
    """

    linear: torch.Tensor | None = None
    quadratic: float = 0.0
    centre: torch.Tensor | None = None

    def at(self, params: torch.Tensor) -> torch.Tensor:
        """The gradient at `params`, [num_params]; never a view of `params`, but possibly `linear` itself."""
        if self.centre is not None:
            pull = (params - self.centre).mul_(self.quadratic)
            return pull if self.linear is None else pull.add_(self.linear)
        if self.linear is None:
            return params * self.quadratic
        return self.linear.add(params, alpha=self.quadratic) if self.quadratic else self.linear


def _check_has_samples(data: DataView | None) -> None:
    """Checks that there is something to take the mean of.

    Raises:
        ScenarioError: The view is empty.
    """
    if data is not None and not len(data):
        raise ScenarioError(
            "a request on a DataView without samples has no result: leave the request out for such a client, or check "
            "in the algorithm's check_clients that every client has enough samples"
        )


@dataclass(frozen=True)
class LocalTraining:
    """Asks for local training from `start` with the phase's `local` options.

    The result is the trained model vector, [length of the model] float32.

    Attributes:
        start: [length of the model] float32: parameters, then buffers.
        gradient: Terms added to every gradient before it is clipped.
        after_step: Terms applied as `params -= lr * term` after the optimizer step, with the rate of that step.
        weight_decay: Times the parameters, added to the gradient after it is clipped, whatever the optimizer makes of
            `local.weight_decay`.
        terms: Terms added to the task's loss on every batch.
        reads_features: Whether a term reads `TrainingBatch.features`.
        step_gradient: Replaces the gradient of every step, in training mode and on the step's own batch; what `local`
            says of clipping, weight decay and the optimizer follows, as do `gradient` and `after_step`. See
            `TrainingStep`. Not for `local.dp`.
        train: What of the network trains, as `phases.N.train`; it restricts what the phase trains further. The
            optimizer is a fresh one, whatever trained before.
        epochs: Passes over the samples, instead of `local.epochs` and `local.steps`.
        steps: Steps, over as many passes as they take, instead of the two.
        data: The samples to train on; by default all of the client's training samples.
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
        _check_has_samples(self.data)
        for name in ("epochs", "steps"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ScenarioError(f"LocalTraining.{name}: must be a whole number of at least 1, not {number!r}")
        if self.epochs is not None and self.steps is not None:
            raise ScenarioError("LocalTraining: 'epochs' and 'steps' both say how long to train; leave one out")


@dataclass(frozen=True)
class _AtModel:
    """A request about a model that is not trained; samples are not augmented unless the view says so.

    Attributes:
        at: [length of the model] float32, the model.
        data: The samples; by default all of the client's training samples.
    """

    at: torch.Tensor
    data: DataView | None = None

    def __post_init__(self) -> None:
        _check_has_samples(self.data)


class Loss(_AtModel):
    """Asks for a model's mean loss in evaluation mode, [1] float32."""


class Gradient(_AtModel):
    """Asks for the gradient of `Loss` with respect to the parameters, [num_params] float32.

    It is zero for parameters that do not train (`phases.N.train`), like those of the two requests below.
    """


class LossAndGradient(_AtModel):
    """Asks for `Loss` and `Gradient` in one pass: [1] and [num_params] float32."""


@dataclass(frozen=True)
class HessianVectorProduct(_AtModel):
    """Asks for the Hessian of `Loss` times a vector, [num_params] float32.

    Attributes:
        vector: [num_params] float32.
    """

    vector: torch.Tensor = field(kw_only=True)


class Features(_AtModel):
    """Asks for what enters the network's feature layer in evaluation mode, [n, d], in the order of the samples.

    Name `features` among the algorithm's `requirements()`, so that a network without a feature layer is refused at the
    start. Features of single samples are not for `local.dp`.
    """


class Outputs(_AtModel):
    """Asks for what the network returns in evaluation mode, [n, ...], in the order of the samples; see `Features`."""


@dataclass(frozen=True)
class Labels:
    """Asks for the labels of samples, [n, ...], in the order of the samples. Not for `local.dp`.

    Attributes:
        data: The samples; by default all of the client's training samples.
    """

    data: DataView | None = None

    def __post_init__(self) -> None:
        _check_has_samples(self.data)


class Rehearsal(_AtModel):
    """Asks for the mean of the task's objective over the batches of a client update, [1] float32, without any step.

    Batches are augmented and the network is in training mode, as where it trains, so that an objective that keeps
    something on the client (`Task.client_state`) fills it. Not for `local.dp`.
    """


Request = (
    LocalTraining | Loss | Gradient | LossAndGradient | HessianVectorProduct | Features | Outputs | Labels | Rehearsal
)

ClientUpdate = Generator[Request, Any, T]
"""A client's part in an exchange, which returns an `Answer`, or in a relay, which returns the model to pass on."""
