"""The executor that answers one request after another on the resident model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch

from rayfl.engine.device import seed_torch
from rayfl.engine.executors.executor import Batch, Executor, view_of
from rayfl.errors import ScenarioError
from rayfl.local.batches import TrainingBatch, check_repeatable
from rayfl.local.context import ClientContext
from rayfl.local.queries import (
    DataView,
    Features,
    Gradient,
    HessianVectorProduct,
    Labels,
    Loss,
    LossAndGradient,
    Outputs,
    Rehearsal,
)
from rayfl.local.requests import LocalTraining, Request
from rayfl.local.sgd import BatchGradients, PeekableIterator, inputs_of, train
from rayfl.local.steps import batches_of_steps
from rayfl.local.training_plan import select
from rayfl.models.feature_layer import features_and_outputs, head_of, undeclared
from rayfl.models.modes import enter_training_mode, evaluation_mode, twice_differentiable


class OneByOne(Executor):
    """Answers all requests of clients without `local.dp`, one at a time."""

    def accepts(self, client: ClientContext, request: Any) -> bool:
        return isinstance(request, Request) and client.local.dp is None

    def answer(self, client: ClientContext, request: Request, number: int) -> Any:
        match request:
            case LocalTraining():
                return self._train(client, request, number)
            case Loss():
                return self._mean_loss(client, request, number)
            case Gradient():
                return self._loss_and_gradient(client, request, number)[1]
            case LossAndGradient():
                return self._loss_and_gradient(client, request, number)
            case HessianVectorProduct():
                return self._hessian_vector_product(client, request, number)
            case Features() | Outputs():
                return self._of_samples(client, request, number)
            case Labels():
                return self._samples.labels(client, view_of(client, request)).clone()
            case Rehearsal():
                return self._rehearse(client, request, number)

    def _train(self, client: ClientContext, request: LocalTraining, number: int) -> torch.Tensor:
        view = view_of(client, request)
        if request.step_gradient is not None:
            keeps = bool(self._task.client_state() or getattr(self._model.module, "copies", None))
            check_repeatable(keeps, self._task.name)
        batches = PeekableIterator(self._samples.training_batches(client, view, number))
        weighted = client.local.sample_weights
        weights = self._samples.training_weights(client, view, number) if weighted else None
        gradients = BatchGradients(self._model, batches, request, client, self._task, weights)
        after_step = partial(self._task.after_step, self._model.module, client)
        seed_torch(client.streams.torch_seed("model", number), self._model.vector.device)  # for dropout masks
        return train(self._model, gradients, client, request, len(view), after_step)

    def _rehearse(self, client: ClientContext, request: Rehearsal, number: int) -> torch.Tensor:
        view, module = view_of(client, request), self._model.module
        batches = PeekableIterator(self._samples.training_batches(client, view, number))
        total = sum(map(len, batches_of_steps(client.local, len(view))))
        self._model.load(request.at, client.discrete.values)
        enter_training_mode(module)
        seed_torch(client.streams.torch_seed("model", number), self._model.vector.device)
        losses = []
        with torch.no_grad():
            for x, y, *others in islice(batches, total):
                views, upcoming = (x, *others), partial(inputs_of, batches)
                batch = TrainingBatch(module, client, views, y, upcoming, self._task.reads_features)
                losses.append(self._task.objective(batch).float())
        self._model.check()
        return torch.stack(losses).mean().reshape(1)

    def _batches(self, client: ClientContext, at: torch.Tensor, view: DataView, number: int) -> Iterator[Batch]:
        """Returns the batches of a pass that does not train, none of which changes a buffer for the next."""
        batches = self._samples.all_batches(client, view, number)
        return self._model.unchanged(batches, at, client.discrete.values)

    def _summed_losses(
        self, client: ClientContext, at: torch.Tensor, view: DataView, number: int
    ) -> Iterator[torch.Tensor]:
        """Yields the loss of every batch of a pass that does not train, summed over its weighted samples."""
        weights, start = self._samples.weights(client, view), 0
        for x, y in self._batches(client, at, view, number):
            outputs = self._model.module(x)
            if weights is None:
                yield self._task.loss(outputs, y, "sum")
            else:
                yield (weights[start : start + len(y)] * self._task.loss(outputs, y, "none")).sum()
                start += len(y)

    def _mean_loss(self, client: ClientContext, request: Loss, number: int) -> torch.Tensor:
        view = view_of(client, request)
        self._model.load(request.at, client.discrete.values)
        total = torch.zeros(1, dtype=torch.float64, device=self._model.vector.device)
        with evaluation_mode(self._model.module), torch.no_grad():
            for loss in self._summed_losses(client, request.at, view, number):
                total += loss
        return (total / self._samples.divisor(client, view, number)).float()

    def _of_samples(self, client: ClientContext, request: Features | Outputs, number: int) -> torch.Tensor:
        """Returns features or outputs of single samples, in evaluation mode."""
        view, module = view_of(client, request), self._model.module
        if isinstance(request, Features) and head_of(module) is None:
            raise ScenarioError(f"its client update requests features, the input of the head: {undeclared(module)}")
        self._model.load(request.at, client.discrete.values)
        with evaluation_mode(module), torch.no_grad():
            inputs = (x for x, _ in self._batches(client, request.at, view, number))
            if isinstance(request, Features):
                return torch.cat([features_and_outputs(module, x)[0] for x in inputs])
            return torch.cat([module(x) for x in inputs])

    def _loss_and_gradient(
        self, client: ClientContext, request: Gradient | LossAndGradient, number: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        view = view_of(client, request)
        self._model.load(request.at, client.discrete.values)
        self._model.zero_gradient()
        divisor = self._samples.divisor(client, view, number)
        total = torch.zeros(1, dtype=torch.float64, device=self._model.vector.device)
        with evaluation_mode(self._model.module):
            for loss in self._summed_losses(client, request.at, view, number):
                torch.autograd.backward(loss / divisor)
                total += loss.detach()
        self._model.check()
        return (total / divisor).float(), self._of_trained(client)

    def _hessian_vector_product(
        self, client: ClientContext, request: HessianVectorProduct, number: int
    ) -> torch.Tensor:
        view = view_of(client, request)
        self._model.load(request.at, client.discrete.values)
        self._model.zero_gradient()
        parameters, divisor = self._model.trained_parameters, self._samples.divisor(client, view, number)
        with evaluation_mode(self._model.module), twice_differentiable(self._model.module):
            for loss in self._summed_losses(client, request.at, view, number):
                gradients = torch.autograd.grad(loss / divisor, parameters, create_graph=True, materialize_grads=True)
                torch.autograd.backward(self._model.dot(gradients, request.vector), inputs=parameters)
        self._model.check()
        return self._of_trained(client)

    def _of_trained(self, client: ClientContext) -> torch.Tensor:
        """Returns a copy of the resident gradient, with zeros for parameters that do not train."""
        selection = select(client.train, self._model.module)
        if selection is None:
            return self._model.gradient.clone()
        result = torch.zeros_like(self._model.gradient)
        for slot in self._model.layout:
            if slot.is_parameter and selection.tensors.intersection(slot.names):
                place = slice(slot.offset, slot.offset + slot.size)
                result[place] = self._model.gradient[place]
        return result
