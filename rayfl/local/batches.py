"""Batches of training and evaluation, and the steps on them, as tasks and algorithms see them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from rayfl.errors import RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.models.feature_layer import features_and_outputs
from rayfl.models.flat import FlatModel


class TrainingBatch:
    """A batch, the network that trains on it, and the client it belongs to.

    `Task.objective` and loss terms (`LossTerm`) receive it.

    Attributes:
        module: The network, in training mode.
        client: The client: its state, its random streams, and `sent`, the vectors that the exchange sent.
        views: The inputs of every view, as the network takes them: [n, ...], or a dictionary of such tensors. There is
            one view unless the task compares several (`Task.views`).
        y: [n, ...], the labels.
        upcoming: `upcoming(k)` returns the inputs of the next k batches, or of as many as remain; of several views, the
            first.

    Example:
        >>> import torch
        >>> from rayfl.local import TrainingBatch
        >>> labels, network = torch.tensor([0, 1]), torch.nn.Linear(3, 2)
        >>> batch = TrainingBatch(network, None, (torch.zeros(2, 3),), labels, upcoming=lambda number: [])
        >>> batch.x.shape, batch.outputs.shape
        (torch.Size([2, 3]), torch.Size([2, 2]))
    """

    __slots__ = ("_features", "_outputs", "_reads_features", "client", "module", "upcoming", "views", "y")

    def __init__(
        self,
        module: nn.Module,
        client: ClientContext,
        views: tuple[Any, ...],
        y: torch.Tensor,
        upcoming: Callable[[int], list[Any]],
        reads_features: bool = False,
    ) -> None:
        self.module, self.client, self.views, self.y, self.upcoming = module, client, views, y, upcoming
        self._reads_features = reads_features
        self._features: torch.Tensor | None = None
        self._outputs: torch.Tensor | None = None

    @property
    def x(self) -> Any:
        """The inputs of the first view."""
        return self.views[0]

    @property
    def outputs(self) -> torch.Tensor:
        """[n, ...], the network's outputs for the first view, with gradients; computed once, on first access."""
        if self._outputs is None:
            if self._reads_features:
                self._features, self._outputs = features_and_outputs(self.module, self.x)
            else:
                self._outputs = self.module(self.x)
        return self._outputs

    @property
    def features(self) -> torch.Tensor:
        """[n, d], the input of the network's feature layer for the first view, with gradients.

        Raises:
            RayflError: Neither the training request nor the task declared that it reads features.
        """
        if not self._reads_features:
            raise RayflError(
                "this batch has no features: set reads_features in the LocalTraining request, or as a class variable "
                "of the task"
            )
        _ = self.outputs
        assert self._features is not None
        return self._features


class EvaluationBatch:
    """A batch that is evaluated, and the network; `Task.evaluated` receives it.

    Attributes:
        module: The network, in evaluation mode.
        x: The inputs as the network takes them, not augmented: [n, ...], or a dictionary of such tensors.
        y: [n, ...], the labels.
        views: Augmented versions of the inputs, as many as the task's `evaluation_views`; the same in every evaluation.

    Example:
        >>> import torch
        >>> from rayfl.local import EvaluationBatch
        >>> batch = EvaluationBatch(torch.nn.Linear(3, 2).eval(), torch.zeros(5, 3), torch.zeros(5, dtype=torch.long))
        >>> batch.outputs.shape
        torch.Size([5, 2])
    """

    __slots__ = ("_features", "_outputs", "module", "views", "x", "y")

    def __init__(self, module: nn.Module, x: Any, y: torch.Tensor, views: tuple[Any, ...] = ()) -> None:
        self.module, self.x, self.y, self.views = module, x, y, views
        self._features: torch.Tensor | None = None
        self._outputs: torch.Tensor | None = None

    @property
    def outputs(self) -> torch.Tensor:
        """[n, ...], the network's outputs for the inputs; computed once, on first access."""
        if self._outputs is None:
            self._outputs = self.module(self.x)
        return self._outputs

    @property
    def features(self) -> torch.Tensor:
        """[n, d], the input of the network's feature layer.

        A task that reads it sets `reads_features`; networks without a feature layer are then rejected before the run
        starts.
        """
        if self._features is None:
            self._features, self._outputs = features_and_outputs(self.module, self.x)
        return self._features


class TrainingStep:
    """A step on a batch that has already been drawn.

    You receive it from rayfl in `LocalTrainingAlgorithm.step_gradient` or `LocalTraining.step_gradient`. SAM, for
    instance, uses the gradient at the worst point near the parameters:

        def step_gradient(self, client, step):
            ascent = step.gradient()
            return step.gradient(at=step.params + self.rho * ascent / ascent.norm())

    Attributes:
        number: Position of the step in the client update, from 0.
        params: float32 [num_params], the parameters at which the step starts; do not change them.
        losses: The mean loss, [], of each gradient computed so far. The first is reported as the step's.

    Args:
        model: The resident model, at the parameters of the step.
        number: Position of the step.
        backward: Adds the gradient of the step's batch to the model's and returns the mean loss; may be called
            repeatedly.
    """

    def __init__(self, model: FlatModel, number: int, backward: Callable[[], torch.Tensor]) -> None:
        self.number, self.params = number, model.params
        self.losses: list[torch.Tensor] = []
        self._model, self._backward = model, backward

    def gradient(self, at: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the gradient of the mean objective of the step's batch, with the network in training mode.

        Batches, including augmentation, are the same in every call; dropout draws anew. The objective is the task's
        plus the request's `terms`. Buffers (batch norm statistics) are updated as in any training step, but only by the
        gradient at the step's own parameters, since they would not describe others.

        Args:
            at: float32 [num_params], other parameters; by default the step's own.

        Returns:
            float32 [num_params]; zero for parameters that do not train.

        Raises:
            RayflError: `at` is not a vector [num_params].
        """
        self._model.zero_gradient()
        with torch.enable_grad(), nullcontext() if at is None else self._model.elsewhere(self._vector(at, "at")):
            self.losses.append(self._backward())
        return self._model.gradient.clone()

    def take(self, gradient: torch.Tensor) -> None:
        """Makes a vector the gradient of the step, for the parameters that train.

        Raises:
            RayflError: It is not a vector [num_params].
        """
        values = self._vector(gradient, "the result of step_gradient")
        self._model.zero_gradient()
        for slot in self._model.training_slots:
            place = slice(slot.offset, slot.offset + slot.size)
            self._model.gradient[place] = values[place]

    def _vector(self, vector: Any, what: str) -> torch.Tensor:
        if not isinstance(vector, torch.Tensor) or vector.shape != self.params.shape:
            shown = list(vector.shape) if isinstance(vector, torch.Tensor) else repr(vector)
            raise RayflError(
                f"{what} must be a vector of the {len(self.params)} parameters, like step.gradient() and step.params, "
                f"not {shown}"
            )
        return vector.detach()


def check_repeatable(keeps: bool, task: str) -> None:
    """Checks that an objective may be computed several times on one batch.

    Args:
        keeps: Whether the client or the network keeps something from one batch to the next.
        task: The task's name.

    Raises:
        ScenarioError: It may not.
    """
    if keeps:
        raise ScenarioError(
            f"its client update computes its own gradients (step_gradient), and task '{task}' keeps something from "
            "one batch to the next, which would count more than once; use another task or algorithm"
        )
