"""The executor that trains one client after another on the host's resident model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch

from rayfl.data.batches import BatchSource
from rayfl.data.device_copy import to_tensor
from rayfl.engine.device import seed_torch
from rayfl.errors import RayflError
from rayfl.local.context import ClientContext
from rayfl.local.data_view import DataView
from rayfl.local.peekable_iterator import PeekableIterator
from rayfl.local.requests import ClientUpdate, Gradient, HessianVectorProduct, LocalTraining, Loss, LossAndGradient
from rayfl.local.sample_weights import sample_weights
from rayfl.local.selection import select
from rayfl.local.sgd import BatchGradients, StepGradient, train
from rayfl.local.steps import batch_size, step_size, steps_per_epoch, update_steps
from rayfl.local.training_plan import plan_training
from rayfl.models.flat import FlatModel
from rayfl.models.modes import evaluation_mode, twice_differentiable
from rayfl.tasks.task import Task

T = TypeVar("T")
Batch = tuple[torch.Tensor, torch.Tensor]

SAMPLES_AT_ONCE = 256
"""Batch size of passes over a client's samples that do not train."""


class OneByOne:
    """Carries out every request as it comes."""

    def __init__(self, model: FlatModel, source: BatchSource, device: torch.device, task: Task) -> None:
        self._model, self._source, self._device, self._task = model, source, device, task

    def run(
        self, clients: Iterable[ClientContext], update: Callable[[ClientContext], ClientUpdate[T]]
    ) -> Iterator[tuple[ClientContext, T]]:
        """See `Executor.run`."""
        for client in clients:
            try:
                # whatever an algorithm draws from PyTorch's own generator is the client's too
                seed_torch(client.streams.torch_seed("algorithm"), self._device)
                yield client, self._finish(client, update(client))
            finally:
                client.close()

    def _finish(self, client: ClientContext, update: ClientUpdate[T]) -> T:
        requests: Counter[str] = Counter()
        result: Any = None
        while True:
            try:
                request = update.send(result)
            except StopIteration as end:
                answer: T = end.value
                return answer
            match request:
                case LocalTraining():
                    result = self._train(client, request, requests["training"])
                    requests["training"] += 1
                case Loss():
                    result = self._mean_loss(client, request, requests["query"])
                    requests["query"] += 1
                case Gradient():
                    result = self._gradient(client, request, requests["query"])
                    requests["query"] += 1
                case LossAndGradient():
                    result = self._loss_and_gradient(client, request, requests["query"])
                    requests["query"] += 1
                case HessianVectorProduct():
                    result = self._hessian_vector_product(client, request, requests["query"])
                    requests["query"] += 1
                case _:
                    raise RayflError(
                        f"its client update yielded a {type(request).__name__}, not a request of rayfl.local.requests"
                    )

    def _train(self, client: ClientContext, request: LocalTraining, number: int) -> torch.Tensor:
        view = client.data if request.data is None else request.data
        selection = select(client.train, self._model.module)
        plan = plan_training(client.local, selection, self._model.module, len(view))
        self._model.load(request.start)
        seed_torch(client.streams.torch_seed("model", number), self._device)
        gradients = self._training_gradients(client, request, view, number)
        client.add_losses(train(self._model, gradients, plan, request, client.local, client.lr))
        self._model.check()
        if client.keeps_trained:
            client.trained = self._model.vector.clone()
        return self._model.vector.clone()

    def _training_gradients(
        self, client: ClientContext, request: LocalTraining, view: DataView, number: int
    ) -> StepGradient:
        """What computes the gradients of the steps of one training request."""
        batches = PeekableIterator(self._training_batches(client, view, number))
        weights = self._training_weights(client, view, number) if client.local.sample_weights else None
        return BatchGradients(self._model, batches, request, client.local, self._task, weights)

    def _training_batches(self, client: ClientContext, view: DataView, number: int) -> Iterator[tuple[Any, ...]]:
        """The batches of one training request, in an order and with an augmentation of its own streams.

        Yields:
            Inputs, labels, and the further views of the inputs that the task compares.
        """
        others = (f"augment view {place}" for place in range(1, self._task.views))
        augmented = view.augment is not False and self._source.augments
        streams = [client.streams.numpy(purpose, number) if augmented else None for purpose in ("augment", *others)]
        rows, own = self._rows(client, view), self._source.set_of(client.id)
        size = batch_size(client.local, len(rows))
        for places in _passes(client, len(rows), number):
            views = [self._source.training_batches(rows[places], size, rng, augmented, own) for rng in streams]
            for (x, y), *further in zip(*views, strict=True):
                yield x, y, *(inputs for inputs, _ in further)

    def _training_weights(self, client: ClientContext, view: DataView, number: int) -> Iterator[torch.Tensor]:
        """The weights of the samples of every training batch."""
        weights = self._weights(client, view)
        assert weights is not None
        for places in _passes(client, len(view), number):
            ordered, size = weights[to_tensor(places, slice(None), self._device)], batch_size(client.local, len(view))
            yield from (ordered[start : start + size] for start in range(0, len(places), size))

    def _weights(self, client: ClientContext, view: DataView) -> torch.Tensor | None:
        """[n] the weights of the view's samples, in its order, among all of the client's; None if all count alike."""
        if client.local.sample_weights is None:
            return None
        weights = sample_weights(client.local.sample_weights, self._labels(client, client.data))
        return weights[to_tensor(view.places, slice(None), self._device)]

    def _rows(self, client: ClientContext, view: DataView) -> np.ndarray:
        rows: np.ndarray = self._source.shard(client.id)[view.places]
        return rows

    def _all_batches(self, client: ClientContext, view: DataView, number: int) -> Iterator[Batch]:
        rows = self._rows(client, view)
        if view.augment:
            rng = client.streams.numpy("augment query", number)
            return self._source.training_batches(rows, SAMPLES_AT_ONCE, rng, name=self._source.set_of(client.id))
        return self._source.plain_batches(rows, SAMPLES_AT_ONCE, self._source.set_of(client.id))

    def _summed_losses(self, client: ClientContext, view: DataView, number: int) -> Iterator[torch.Tensor]:
        """The loss of every batch of a pass that does not train, summed over its weighted samples."""
        weights, start = self._weights(client, view), 0
        for x, y in self._all_batches(client, view, number):
            outputs = self._model.module(x)
            if weights is None:
                yield self._task.loss(outputs, y, "sum")
            else:
                yield (weights[start : start + len(y)] * self._task.loss(outputs, y, "none")).sum()
                start += len(y)

    def _divisor(self, client: ClientContext, view: DataView) -> torch.Tensor | int:
        """What the summed loss of all samples is divided by."""
        return self._task.divisor(self._labels(client, view))

    def _labels(self, client: ClientContext, view: DataView) -> torch.Tensor:
        return self._source.labels(self._rows(client, view), self._source.set_of(client.id))

    def _mean_loss(self, client: ClientContext, request: Loss, number: int) -> torch.Tensor:
        view = client.data if request.data is None else request.data
        self._model.load(request.at)
        total = torch.zeros(1, dtype=torch.float64, device=self._device)
        with evaluation_mode(self._model.module), torch.no_grad():
            for loss in self._summed_losses(client, view, number):
                total += loss
        return (total / self._divisor(client, view)).float()

    def _gradient(self, client: ClientContext, request: Gradient, number: int) -> torch.Tensor:
        return self._loss_and_gradient(client, request, number)[1]

    def _loss_and_gradient(
        self, client: ClientContext, request: Gradient | LossAndGradient, number: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        view = client.data if request.data is None else request.data
        self._model.load(request.at)
        self._model.zero_gradient()
        divisor = self._divisor(client, view)
        total = torch.zeros(1, dtype=torch.float64, device=self._device)
        with evaluation_mode(self._model.module):
            for loss in self._summed_losses(client, view, number):
                torch.autograd.backward(loss / divisor)
                total += loss.detach()
        self._model.check()
        return (total / divisor).float(), self._of_trained(client)

    def _hessian_vector_product(
        self, client: ClientContext, request: HessianVectorProduct, number: int
    ) -> torch.Tensor:
        view = client.data if request.data is None else request.data
        self._model.load(request.at)
        self._model.zero_gradient()
        parameters, divisor = self._model.trained_parameters, self._divisor(client, view)
        with evaluation_mode(self._model.module), twice_differentiable(self._model.module):
            for loss in self._summed_losses(client, view, number):
                gradients = torch.autograd.grad(loss / divisor, parameters, create_graph=True, materialize_grads=True)
                torch.autograd.backward(self._model.dot(gradients, request.vector), inputs=parameters)
        self._model.check()
        return self._of_trained(client)

    def _of_trained(self, client: ClientContext) -> torch.Tensor:
        """A copy of the resident gradient; zero for parameters that stay as they are."""
        selection = select(client.train, self._model.module)
        if selection is None:
            return self._model.gradient.clone()
        result = torch.zeros_like(self._model.gradient)
        for slot in self._model.layout:
            if slot.is_parameter and selection.tensors.intersection(slot.names):
                place = slice(slot.offset, slot.offset + slot.size)
                result[place] = self._model.gradient[place]
        return result


def _passes(client: ClientContext, samples: int, number: int) -> Iterator[np.ndarray]:
    """The places of the samples that each epoch of a training request takes, in their order."""
    order = client.streams.numpy("order", number)
    remaining, per_epoch = update_steps(client.local, samples), steps_per_epoch(client.local, samples)
    while remaining:
        steps = min(remaining, per_epoch)
        places = order.permutation(samples) if client.local.shuffle else np.arange(samples)
        yield places[: steps * step_size(client.local, samples)]
        remaining -= steps
