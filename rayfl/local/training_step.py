"""One step of local training, for algorithms that compute their clients' gradients themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from rayfl.errors import RayflError, ScenarioError
from rayfl.models.flat import FlatModel


class TrainingStep:
    """A step on a batch that has been drawn, as `LocalTraining.step_gradient` sees it.

    SAM's, for instance, is the gradient at the worst point near the parameters:

        def step_gradient(self, step):
            ascent = step.gradient()
            return step.gradient(at=step.params + self.rho * ascent / ascent.norm())

    Attributes:
        number: Which step of the client update it is, from 0.
        params: [num_params] float32, the parameters that the step starts from; not to be changed.
        losses: The mean loss, [], of each gradient that was computed so far. The first is reported as the step's.

    Args:
        model: The resident model, at the parameters of the step.
        number: Which step it is.
        backward: Adds the gradient of the step's batch to the model's, and returns the mean loss; as often as wanted.
    """

    def __init__(self, model: FlatModel, number: int, backward: Callable[[], torch.Tensor]) -> None:
        self.number, self.params = number, model.params
        self.losses: list[torch.Tensor] = []
        self._model, self._backward = model, backward

    def gradient(self, at: torch.Tensor | None = None) -> torch.Tensor:
        """The gradient of the mean objective of the step's batch, with the network in training mode.

        Batches, augmented samples included, are the same in every call; dropout draws anew. The objective is the task's
        with the request's `terms`. Buffers (batch norm's statistics) change as in any training step, but only where the
        gradient is that of the step's own parameters: they say nothing of other ones.

        Args:
            at: [num_params] float32, other parameters; by default the step's.

        Returns:
            [num_params] float32; zero for what does not train.
        """
        self._model.zero_gradient()
        with torch.enable_grad(), nullcontext() if at is None else self._model.elsewhere(self._vector(at, "at")):
            self.losses.append(self._backward())
        return self._model.gradient.clone()

    def take(self, gradient: torch.Tensor) -> None:
        """Makes a vector the gradient of the step, where parameters train.

        Raises:
            RayflError: It is none.
        """
        values = self._vector(gradient, "what step_gradient returned")
        self._model.zero_gradient()
        for slot in self._model.training_slots:
            place = slice(slot.offset, slot.offset + slot.size)
            self._model.gradient[place] = values[place]

    def _vector(self, vector: Any, what: str) -> torch.Tensor:
        if not isinstance(vector, torch.Tensor) or vector.shape != self.params.shape:
            shown = list(vector.shape) if isinstance(vector, torch.Tensor) else repr(vector)
            raise RayflError(
                f"{what} must be a vector of the {len(self.params)} parameters, as step.gradient() and step.params "
                f"are, not {shown}"
            )
        return vector.detach()


def check_repeatable(keeps: bool, task: str) -> None:
    """Checks that an objective may be computed several times on one batch.

    Args:
        keeps: Whether something is kept from one batch to the next, by the client or in the network.
        task: The task's name.

    Raises:
        ScenarioError: It may not.
    """
    if keeps:
        raise ScenarioError(
            f"its client update computes gradients of its own (step_gradient), and task '{task}' keeps something from "
            "one batch to the next, which would count more than once; use another task or algorithm"
        )
