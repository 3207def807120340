"""The interface of executors, which answer requests of client updates, and how several of them share requests.

Executors read a client's samples here: batches, labels and weights of a view.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from rayfl.data.batches import BatchSource
from rayfl.data.tensors import to_tensor
from rayfl.engine.device import TorchGenerators
from rayfl.errors import RayflError, ScenarioError
from rayfl.interruption import is_of_user_code
from rayfl.local.context import ClientContext
from rayfl.local.queries import DataView
from rayfl.local.requests import Request
from rayfl.local.sample_weights import sample_weights
from rayfl.local.steps import batch_size, passes
from rayfl.models.flat import FlatModel
from rayfl.tasks.task import Task

Batch = tuple[Any, torch.Tensor]
"""Inputs and labels."""

SAMPLES_AT_ONCE = 256
"""Batch size of passes over a client's samples that do not train."""


def view_of(client: ClientContext, request: Request) -> DataView:
    """Returns the samples that a request is about."""
    return client.data if request.data is None else request.data


class ClientSamples:
    """Reads clients' samples for all executors, ordered and augmented by the clients' own random streams.

    Args:
        source: Source of the samples.
        device: Device of the batches.
        task: The task.
    """

    def __init__(self, source: BatchSource, device: torch.device, task: Task) -> None:
        self.source, self._device, self._task = source, device, task

    def rows(self, client: ClientContext, view: DataView) -> np.ndarray:
        """Returns the rows of a view's samples in their set, [n]."""
        rows: np.ndarray = self.source.shard(client.id)[view.places]
        return rows

    def labels(self, client: ClientContext, view: DataView) -> torch.Tensor:
        """Returns the labels of a view's samples, in its order."""
        return self.source.labels(self.rows(client, view), self.source.set_of(client.id))

    def divisor(self, client: ClientContext, view: DataView, number: int) -> torch.Tensor | int:
        """Returns the divisor of the summed loss of a view's samples, with the labels that query `number` sees."""
        if view.augment and self.source.moves_labels:
            return self._task.divisor(torch.cat([y for _, y in self.all_batches(client, view, number)]))
        return self._task.divisor(self.labels(client, view))

    def weights(self, client: ClientContext, view: DataView) -> torch.Tensor | None:
        """Returns the weights of a view's samples relative to all of the client's, [n], in order; None if all equal."""
        if client.local.sample_weights is None:
            return None
        weights = sample_weights(client.local.sample_weights, self.labels(client, client.data))
        return weights[to_tensor(view.places, slice(None), self._device)]

    def training_batches(self, client: ClientContext, view: DataView, number: int) -> Iterator[tuple[Any, ...]]:
        """Yields the batches of one training request, ordered and augmented by the request's own streams.

        Yields:
            Inputs, labels, and further views of the inputs if the task compares several.
        """
        others = (f"augment view {place}" for place in range(1, self._task.views))
        varied = view.augment is not False and self.source.varies
        streams = [client.streams.numpy(purpose, number) if varied else None for purpose in ("augment", *others)]
        rows, own = self.rows(client, view), self.source.set_of(client.id)
        size = batch_size(client.local, len(rows))
        for places in self._passes(client, view, number):
            for (x, *further), y in self.source.training_views(rows[places], size, streams, varied, own):
                yield x, y, *further

    def _passes(self, client: ClientContext, view: DataView, number: int) -> Iterator[np.ndarray]:
        """Yields the positions in the view that each epoch of a training request uses, in order."""
        balanced = client.local.sampling == "balanced"
        classes = self.labels(client, view).cpu().numpy() if balanced else None
        return passes(client.local, len(view), client.streams.numpy("order", number), classes)

    def training_weights(self, client: ClientContext, view: DataView, number: int) -> Iterator[torch.Tensor]:
        """Yields the weights of the samples of every training batch."""
        weights = self.weights(client, view)
        assert weights is not None
        for places in self._passes(client, view, number):
            ordered, size = weights[to_tensor(places, slice(None), self._device)], batch_size(client.local, len(view))
            yield from (ordered[start : start + size] for start in range(0, len(places), size))

    def all_batches(self, client: ClientContext, view: DataView, number: int) -> Iterator[Batch]:
        """Returns the batches of a pass that does not train; `number` is the query's, for the draws of augmentation."""
        rows = self.rows(client, view)
        if view.augment:
            rng = client.streams.numpy("augment query", number)
            return self.source.training_batches(rows, SAMPLES_AT_ONCE, rng, name=self.source.set_of(client.id))
        return self.source.plain_batches(rows, SAMPLES_AT_ONCE, self.source.set_of(client.id))


@dataclass(frozen=True, slots=True)
class Requested:
    """A request that a client update waits for.

    Attributes:
        client: The client.
        request: The object that its algorithm yielded; a `Request`, unless the algorithm is wrong.
        number: Number of earlier requests of its kind, training or query, in this update.
    """

    client: ClientContext
    request: Any
    number: int


class Executor(ABC):
    """Answers requests of client updates; algorithms cannot tell which executor does.

    Attributes:
        at_least: Smallest number of requests that it takes; fewer are left to the next executor.

    Args:
        model: The resident model.
        samples: The clients' samples.
        task: The task.
        generators: PyTorch's generators, by client.
    """

    at_least: ClassVar[int] = 1

    def __init__(self, model: FlatModel, samples: ClientSamples, task: Task, generators: TorchGenerators) -> None:
        self._model, self._samples, self._task, self._generators = model, samples, task, generators

    @abstractmethod
    def accepts(self, client: ClientContext, request: Any) -> bool:
        """Whether this executor can answer a request."""

    @abstractmethod
    def answer(self, client: ClientContext, request: Any, number: int) -> Any:
        """Answers one accepted request; arguments as for `Requested`."""

    def run(self, requests: Sequence[Requested]) -> list[Any]:
        """Answers accepted requests, at most one per client; by default one after the other.

        Args:
            requests: Requests, in the order in which the scenario groups the clients.

        Returns:
            For each request the result, which shares no memory with the resident model or other clients, or the
            exception that it ended with. An exception raised by this method itself fails all of them.
        """
        results: list[Any] = []
        for requested in requests:
            self._generators.enter(requested.client)
            try:
                results.append(self.answer(requested.client, requested.request, requested.number))
            except BaseException as error:  # a user's network, task or loss term may raise anything
                if not is_of_user_code(error):
                    raise
                results.append(error)
        return results


def shared_out(chain: Sequence[Executor], requests: Sequence[Requested]) -> list[tuple[Executor, list[int]]]:
    """Distributes requests: each executor takes those it accepts among the ones left by earlier executors.

    Args:
        chain: Executors, in the order in which they are tried.
        requests: The requests.

    Returns:
        Executors with the positions of their requests; requests that no executor accepts are in no list.
    """
    shares, remaining = [], list(range(len(requests)))
    for executor in chain:
        taken = [place for place in remaining if executor.accepts(requests[place].client, requests[place].request)]
        if taken and len(taken) >= executor.at_least:
            shares.append((executor, taken))
            remaining = [place for place in remaining if place not in taken]
    return shares


def not_accepted(requested: Requested) -> RayflError:
    """Returns the error for a request that no executor accepts."""
    kind = type(requested.request).__name__
    if requested.client.local.dp is None:
        return RayflError(f"its client update yielded a {kind}, not a request of rayfl.local")
    if kind == "HessianVectorProduct":
        return RayflError(
            "local.dp: its client update requests a Hessian-vector product, which cannot be clipped per sample; use a "
            "first-order algorithm"
        )
    if kind in ("Features", "Labels", "Outputs"):
        return ScenarioError(
            f"local.dp: its client update requests the {kind.lower()} of single samples, which no noise hides; use an "
            "algorithm that requests losses and gradients"
        )
    return RayflError(
        f"local.dp: its client update yielded a {kind}, which rayfl cannot clip, noise and account for; yield "
        "LocalTraining, Loss, Gradient or LossAndGradient"
    )
