"""Queries: requests about a model or labels that an algorithm makes of a client, without training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import torch

    from rayfl.local.data_view import DataView


def check_has_samples(data: DataView | None) -> None:
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
class _AtModel:
    """A request about a model without training it; samples are not augmented unless the view says so.

    Attributes:
        at: float32 [length of the model], the model.
        data: The samples; by default all of the client's training samples.
    """

    at: torch.Tensor
    data: DataView | None = None

    def __post_init__(self) -> None:
        check_has_samples(self.data)


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
        check_has_samples(self.data)


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
