"""The client that an algorithm sees during a visit."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from rayfl.config.phase import Local
from rayfl.data.batches import BatchSource
from rayfl.local.sgd import Objective, train
from rayfl.local.steps import batch_size, steps_per_epoch, visit_steps
from rayfl.models.flat import FlatModel
from rayfl.streams import stream


class Client:
    """One client in one visit: its examples, its state, and the resident model to train with.

    id: the client's number; num_samples: its training examples.
    received: the model vector that training started from, on the client's device.
    state: named vectors that live with the client from round to round, and are kept only if the round is.
    """

    def __init__(
        self,
        id: int,
        source: BatchSource,
        model: FlatModel,
        local: Local,
        lr: float,
        seed: int,
        phase: int,
        round: int,
        state: dict[str, torch.Tensor],
    ) -> None:
        self.id, self.model, self.local, self.lr, self.state = id, model, local, lr, state
        self._source = source
        self._key = (seed, phase, round, id)
        self.num_samples = source.num_samples(id)
        self.received = model.vector
        self.losses: list[float] = []

    def train(self, received: torch.Tensor, objective: Objective) -> torch.Tensor:
        """Local SGD from `received`; returns the resident model's vector, which the next visit will overwrite.

        Raises:
            DivergenceError: the loss or a parameter is not finite.
        """
        self.received = received
        self.model.load(received)
        self.losses += train(self, self.model, self.batches(), objective, self.local, self.lr)
        return self.model.sync()

    def cross_entropy(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the resident model on one batch."""
        return F.cross_entropy(self.model.module(x), y)

    def batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The visit's training batches (x, y), in an order and with an augmentation of the visit's own streams."""
        seed, *counters = self._key
        order, augment = stream(seed, "order", *counters), stream(seed, "augment", *counters)
        remaining = visit_steps(self.local, self.num_samples)
        size = batch_size(self.local, self.num_samples)
        while remaining:
            steps = min(remaining, steps_per_epoch(self.local, self.num_samples))
            yield from self._source.training_batches(self.id, order.permutation(self.num_samples), size, steps, augment)
            remaining -= steps
