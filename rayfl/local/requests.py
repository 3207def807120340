"""Requests that an algorithm makes of a client, as data; the worker's executor decides how to compute them.

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
"""Computes a scalar that is added to the loss of a batch, from the `TrainingBatch`.

You write one in `Penalty.term`, or pass one in `LocalTraining.terms`.
"""

OwnGradient = Callable[["TrainingStep"], "torch.Tensor"]
"""Computes the gradient that a step uses, float32 [num_params]. With `LossTerm` the only part of a request that is code
rather than data."""

NO_OWN_GRADIENTS = (
    "one gradient a step is noised and charged to the client's samples; use an algorithm without step_gradient"
)
"""Why `local.dp` refuses `LocalTraining.step_gradient`."""


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


def _check_has_samples(data: DataView | None) -> None:
    """Checks that a view has samples to average over.

    Raises:
        ScenarioError: The view is empty.
    """
    if data is not None and not len(data):
        raise ScenarioError(
            "a request on a DataView without samples has no result: skip the request for such a client, or check in "
            "the algorithm's check_clients that every client has enough samples"
        )


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
        _check_has_samples(self.data)
        for name in ("epochs", "steps"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ScenarioError(f"LocalTraining.{name}: must be a whole number of at least 1, not {number!r}")
        if self.epochs is not None and self.steps is not None:
            raise ScenarioError("LocalTraining: 'epochs' and 'steps' both set the length of training; leave one out")


@dataclass(frozen=True)
class _AtModel:
    """A request about a model without training it; samples are not augmented unless the view says so.

    Attributes:
        at: float32 [length of the model], the model.
        data: The samples; by default all of the client's training samples.
    """

    at: torch.Tensor
    data: DataView | None = None

    def __post_init__(self) -> None:
        _check_has_samples(self.data)


class Loss(_AtModel):
    """Asks for a model's mean loss in evaluation mode; the result is float32 [1].

    Attributes:
        at: float32 [length of the model], the model.
        data: The samples; by default all of the client's training samples. They are augmented only if the view says so.

    Raises:
        ScenarioError: The view is empty.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import Loss
        >>> def client_update(client, model):
        ...     loss = yield Loss(model)
        ...     return Answer(maxima={"loss": loss})
        >>> next(client_update(None, torch.zeros(2)))
        Loss(at=tensor([0., 0.]), data=None)
    """


class Gradient(_AtModel):
    """Asks for the gradient of `Loss` with respect to the parameters; the result is float32 [num_params].

    It is zero for parameters that do not train (`phases.N.train`). Attributes and errors as for `Loss`.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import Gradient
        >>> def client_update(client, model):
        ...     gradient = yield Gradient(model)
        ...     return Answer(client.num_samples, gradient=gradient)
        >>> next(client_update(None, torch.zeros(2)))
        Gradient(at=tensor([0., 0.]), data=None)
    """


class LossAndGradient(_AtModel):
    """Asks for `Loss` and `Gradient` in one pass; the result is a pair of float32 [1] and [num_params].

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import LossAndGradient
        >>> def client_update(client, model):
        ...     loss, gradient = yield LossAndGradient(model)
        ...     return Answer(loss=loss, gradient=gradient)
        >>> next(client_update(None, torch.zeros(2)))
        LossAndGradient(at=tensor([0., 0.]), data=None)
    """


@dataclass(frozen=True)
class HessianVectorProduct(_AtModel):
    """Asks for the Hessian of `Loss` times a vector; the result is float32 [num_params].

    It is zero for parameters that do not train (`phases.N.train`). Not for `local.dp`.

    Attributes:
        at: float32 [length of the model], the model.
        data: The samples; by default all of the client's training samples. They are augmented only if the view says so.
        vector: float32 [num_params].

    Raises:
        ScenarioError: The view is empty.

    Example:
        >>> import torch
        >>> from rayfl.local import HessianVectorProduct
        >>> HessianVectorProduct(torch.zeros(2), vector=torch.ones(2)).vector
        tensor([1., 1.])
    """

    vector: torch.Tensor = field(kw_only=True)


class Features(_AtModel):
    """Asks for the input of the network's feature layer in evaluation mode; the result is [n, d], in sample order.

    Add `features` to the algorithm's `requirements()`, so that networks without a feature layer are rejected before the
    run starts. Not for `local.dp`, since features are those of single samples. Attributes and errors as for `Loss`.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import Features
        >>> def client_update(client, model):
        ...     features = yield Features(model)
        ...     return Answer(len(features), prototype=features.mean(dim=0))
        >>> next(client_update(None, torch.zeros(2)))
        Features(at=tensor([0., 0.]), data=None)
    """


class Outputs(_AtModel):
    """Asks for the network's outputs in evaluation mode; the result is [n, ...], in sample order.

    Not for `local.dp`. Attributes and errors as for `Loss`.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import Outputs
        >>> def client_update(client, model):
        ...     logits = yield Outputs(model)
        ...     return Answer(len(logits), mean_probabilities=logits.softmax(dim=1).mean(dim=0))
        >>> next(client_update(None, torch.zeros(2)))
        Outputs(at=tensor([0., 0.]), data=None)
    """


@dataclass(frozen=True)
class Labels:
    """Asks for the labels of samples; the result is [n, ...], in sample order. Not for `local.dp`.

    Attributes:
        data: The samples; by default all of the client's training samples.

    Raises:
        ScenarioError: The view is empty.

    Example:
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import Labels
        >>> def client_update(client, model):
        ...     labels = yield Labels()
        ...     return Answer(sums={"class_counts": labels.bincount(minlength=10).float()})
        >>> next(client_update(None, None))
        Labels(data=None)
    """

    data: DataView | None = None

    def __post_init__(self) -> None:
        _check_has_samples(self.data)


class Rehearsal(_AtModel):
    """Asks for the mean of the task's objective over the batches of a client update, without steps; float32 [1].

    Batches are augmented and the network is in training mode, as in local training, so an objective that keeps
    something on the client (`Task.client_state`) fills it. Not for `local.dp`. Attributes and errors as for `Loss`.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> from rayfl.local import Rehearsal
        >>> def fill_memory(client, model):
        ...     objective = yield Rehearsal(model)
        ...     return Answer(diagnostics={"objective": objective})
        >>> next(fill_memory(None, torch.zeros(2)))
        Rehearsal(at=tensor([0., 0.]), data=None)
    """


Request = (
    LocalTraining | Loss | Gradient | LossAndGradient | HessianVectorProduct | Features | Outputs | Labels | Rehearsal
)

ClientUpdate = Generator[Request, Any, T]
"""A client's part in an exchange, which returns an `Answer`, or in a relay, which returns the model to pass on.

You write one as a generator function that yields requests; see `Exchange` and `Algorithm`.
"""
