"""The client that an algorithm sees during a visit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn

from rayfl.config.phase import Local
from rayfl.data.batches import BatchSource
from rayfl.local.features import features_and_logits
from rayfl.local.lookahead import Lookahead
from rayfl.local.sgd import Objective, train
from rayfl.local.steps import batch_size, steps_per_epoch, visit_steps
from rayfl.local.unfreezing import training_stages
from rayfl.models.flat import FlatModel
from rayfl.streams import stream

EXAMPLES_AT_ONCE = 256
"""Batch size of passes over a client's examples that do not train."""


class Client:
    """One client in one visit: its examples, its state, and the resident model to train with.

    id: the client's number; num_samples: its training examples.
    received: the model vector that training started from, on the client's device.
    state: named vectors that live with the client from round to round, and are kept only if the round is.
    scratch: named vectors that the algorithm keeps for the rest of this visit.
    losses: of every step so far.
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
        self.scratch: dict[str, torch.Tensor] = {}
        self.losses: list[float] = []
        self._frozen: dict[int, nn.Module] = {}
        self._batches = Lookahead[tuple[torch.Tensor, torch.Tensor]](iter(()))
        self._foreseen: deque[tuple[torch.Tensor, torch.Tensor]] = deque()

    @property
    def relative_size(self) -> float:
        """The client's number of training examples over the mean of all clients."""
        return self.num_samples / self._source.mean_samples

    def train(self, received: torch.Tensor, objective: Objective, fixed_last: int = 0) -> torch.Tensor:
        """Local SGD from `received`; returns the resident model's vector, which the next visit will overwrite.

        fixed_last: how many of the network's last modules stay as they are, whatever `local` says.

        Raises:
            DivergenceError: the loss or a parameter is not finite.
        """
        self.received = received
        self.model.load(received)
        steps = visit_steps(self.local, self.num_samples)
        stages = training_stages(self.local, fixed_last, self.model.module, steps)
        self._batches = Lookahead(self.batches())
        self.losses += train(self, self.model, self._batches, stages, objective, self.local, self.lr)
        self.model.check()
        return self.model.vector

    def cross_entropy(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the resident model on one batch."""
        return F.cross_entropy(self.model.module(x), y)

    def features(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features ([n, d]: what enters the network's feature layer) and logits of the resident model, in training."""
        return features_and_logits(self.model.module, x)

    def features_of(self, vector: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """[n, d] features that another model has of the same batch: in evaluation mode, without gradient.

        vector: the model; it must not change in this visit.
        """
        if vector.data_ptr() not in self._frozen:
            self._frozen[vector.data_ptr()] = self.model.frozen(vector, len(self._frozen))
        with torch.no_grad():
            return features_and_logits(self._frozen[vector.data_ptr()], x)[0]

    def foreseen(self, x: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """compute(x) for the batch that is trained on, done together with the batches that follow, which is faster.

        compute: gives examples [n, ...] a row each, which depends on the example alone and not on the resident model;
            the same throughout a visit, since its rows for coming batches are kept.
        """
        while self._foreseen and self._foreseen[0][0] is not x:
            self._foreseen.popleft()
        if not self._foreseen:
            batches = [x, *(following for following, _ in self._batches.peek(EXAMPLES_AT_ONCE // len(x) - 1))]
            rows = compute(torch.cat(batches))
            parts = rows.split([len(batch) for batch in batches])  # type: ignore[no-untyped-call]
            self._foreseen.extend(zip(batches, parts, strict=True))
        return self._foreseen[0][1]

    def mean_loss(self, vector: torch.Tensor) -> torch.Tensor:
        """[1] the mean cross-entropy of a model on all of the client's examples, not augmented, in evaluation mode."""
        self.model.load(vector)
        self.model.module.eval()
        total = torch.zeros(1, dtype=torch.float64, device=vector.device)
        with torch.no_grad():
            for x, y in self._all_examples():
                total += F.cross_entropy(self.model.module(x), y, reduction="sum")
        self.model.module.train()
        return (total / self.num_samples).float()

    def mean_gradient(self, vector: torch.Tensor) -> torch.Tensor:
        """[length of params] the gradient of `mean_loss`."""
        self.model.load(vector)
        self.model.module.eval()
        self.model.zero_gradient()
        for x, y in self._all_examples():
            torch.autograd.backward(F.cross_entropy(self.model.module(x), y, reduction="sum") / self.num_samples)
        self.model.module.train()
        self.model.check()
        return self.model.gradient.clone()

    def _all_examples(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return self._source.plain_batches(self.id, EXAMPLES_AT_ONCE)

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
