"""Reads a client's samples for requests: batches, labels and weights of a view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rayfl.data.batches import BatchSource
from rayfl.data.device_copy import to_tensor
from rayfl.local.context import ClientContext
from rayfl.local.data_view import DataView
from rayfl.local.order import passes
from rayfl.local.requests import Request
from rayfl.local.sample_weights import sample_weights
from rayfl.local.steps import batch_size
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
