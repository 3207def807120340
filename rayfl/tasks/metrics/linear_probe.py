"""A linear classifier on frozen features, trained anew in every evaluation."""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic import PositiveFloat, PositiveInt
from torch.nn.functional import cross_entropy

from rayfl.streams import stream
from rayfl.tasks.metrics.bank_metric import BankMetric
from rayfl.tasks.metrics.metric import State


class LinearProbe(BankMetric):
    """Accuracy of a linear classifier trained on the bank's features.

    It is trained by SGD with momentum 0.9 and a cosine schedule to zero, starting from zero weights. Features are
    computed once, from images without augmentation; SimSiam's protocol, whose numbers these are, crops and flips them
    anew in every epoch.

    From Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, appendix A. Always defined.

    Args:
        epochs: Passes over the bank.
        batch_size: Samples per step; the last batch of a pass may have fewer.
        lr: Learning rate for a batch of 256; scaled linearly for other batch sizes.
        seed: Seed of the sample order.
    """

    def __init__(
        self, epochs: PositiveInt = 50, batch_size: PositiveInt = 256, lr: PositiveFloat = 30.0, seed: int = 0
    ) -> None:
        self._epochs, self._batch_size, self._lr, self._seed = epochs, batch_size, lr, seed

    def value_beside(self, state: State, bank: State) -> float:
        x, y = torch.from_numpy(bank["features"]), torch.from_numpy(bank["labels"])
        asked, truth = torch.from_numpy(state["features"]), torch.from_numpy(state["labels"])
        with torch.inference_mode(False), torch.enable_grad():
            layer = torch.nn.Linear(x.shape[1], 1 + int(max(y.max(), truth.max())))
            for parameter in layer.parameters():
                torch.nn.init.zeros_(parameter)
            self._train(layer, x.clone(), y.clone())
            return float((layer(asked.clone()).argmax(dim=1) == truth).double().mean())

    def _train(self, layer: torch.nn.Linear, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.0, momentum=0.9)
        rng, whole = stream(self._seed, "linear probe"), self._lr * self._batch_size / 256
        for epoch in range(self._epochs):
            optimizer.param_groups[0]["lr"] = whole * (1 + math.cos(math.pi * epoch / self._epochs)) / 2
            for rows in np.array_split(rng.permutation(len(x)), range(self._batch_size, len(x), self._batch_size)):
                optimizer.zero_grad()
                cross_entropy(layer(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
