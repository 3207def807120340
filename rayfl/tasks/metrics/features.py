"""Metrics of features, given a bank of training samples: nearest neighbours, and a linear probe."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import PositiveFloat, PositiveInt
from torch.nn.functional import cross_entropy, normalize, one_hot

from rayfl.errors import RayflError
from rayfl.streams import stream
from rayfl.tasks.metrics.metric import Metric, State


class BankMetric(Metric):
    """Measures how well the labels of test samples follow from features, given those of `evaluation.bank`.

    Its states hold all features and labels, which are combined on one worker.
    """

    higher_is_better = True
    is_share = True
    reads_features = True

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        """Returns the features [n, d] and class labels [n] of a batch.

        Raises:
            RayflError: The labels are not classes.
        """
        if targets.ndim != 1 or targets.is_floating_point():
            raise RayflError(f"needs class labels [n]; the data has {targets.dtype} labels {list(targets.shape)}")
        return {"features": outputs.float().cpu().numpy(), "labels": targets.cpu().numpy()}

    def merged(self, states: Sequence[State]) -> State:
        return {name: np.concatenate([state[name] for state in states]) for name in states[0]}

    def value(self, state: State) -> float | None:
        raise RayflError("has no value without a bank of training samples")

    @abstractmethod
    def value_beside(self, state: State, bank: State) -> float:
        """Computes the value of a state.

        Args:
            state: The state of the test samples.
            bank: The state of the bank.
        """


AT_ONCE = 1024
"""Number of test samples that are compared with the bank at a time."""


class KNN(BankMetric):
    """Accuracy of a vote among the k training samples with the largest cosine in feature space.

    A vote weighs e^(cosine / temperature). From Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance
    Discrimination", CVPR 2018, section 3.4. Always defined.

    Args:
        k: Number of neighbours; the whole bank if it has fewer samples.
        temperature: Temperature of their weights.
    """

    def __init__(self, k: PositiveInt = 200, temperature: PositiveFloat = 0.1) -> None:
        self._k, self._temperature = k, temperature

    def value_beside(self, state: State, bank: State) -> float:
        known, labels = normalize(torch.from_numpy(bank["features"])), torch.from_numpy(bank["labels"])
        asked, truth = normalize(torch.from_numpy(state["features"])), torch.from_numpy(state["labels"])
        classes = 1 + int(max(labels.max(), truth.max()))
        right = 0
        for some, wanted in zip(torch.split(asked, AT_ONCE), torch.split(truth, AT_ONCE), strict=True):
            cosines, places = (some @ known.T).topk(min(self._k, len(known)), dim=1)
            weights = (cosines / self._temperature).exp().unsqueeze(2)
            votes = (weights * one_hot(labels[places], classes)).sum(dim=1)
            right += int((votes.argmax(dim=1) == wanted).sum())
        return right / len(truth)


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
