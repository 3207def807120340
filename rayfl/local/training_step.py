"""One step of local training, for algorithms that compute their clients' gradients themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from rayfl.errors import RayflError, ScenarioError
from rayfl.models.flat import FlatModel


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
