"""Queries: requests about a model or labels, without training; and views of the samples that requests read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class DataView:
    """Some of a client's training samples; views of one client may overlap.

    You get the view of all samples as `ClientContext.data`, and parts of it from `split`.

    Attributes:
        places: int64 [n], the samples' positions in the client's shard.
        augment: Whether to augment batches; None for the request's default (training augments, losses and gradients do
            not).
        part: Name of a part of the samples that is drawn once and for all and overlaps no part of another name
            (`support`, `query`): their privacy costs compose in parallel. Empty for all other views.

    Example:
        >>> import numpy as np
        >>> from rayfl.local import DataView
        >>> query, support = DataView(np.arange(10)).split(0.2, np.random.default_rng(0))
        >>> len(query), len(support), query.augmented(False).augment
        (2, 8, False)
    """

    places: np.ndarray
    augment: bool | None = None
    part: str = ""

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.places)

    def split(self, share: float, rng: np.random.Generator) -> tuple[DataView, DataView]:
        """Splits the view at random into two, such as query and support.

        Args:
            share: Share of the samples in the first view, between 0 and 1; both views get at least one sample.
            rng: Draws the split. A stream that does not depend on the round gives the same split in all rounds.

        Raises:
            ScenarioError: There are fewer than two samples, or `share` is not between 0 and 1.
        """
        if not 0 < share < 1:
            raise ScenarioError(f"a share of {share} does not split samples: it must lie between 0 and 1")
        if len(self) < 2:
            raise ScenarioError(f"{len(self)} training samples cannot be split in two")
        first = min(max(1, round(share * len(self))), len(self) - 1)
        order = rng.permutation(len(self))
        return (
            replace(self, places=self.places[np.sort(order[:first])]),
            replace(self, places=self.places[np.sort(order[first:])]),
        )

    def augmented(self, augment: bool = True) -> DataView:
        """Returns the same samples, with or without augmentation, whatever the request's default."""
        return replace(self, augment=augment)


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
