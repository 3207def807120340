"""Metrics of features, given a bank of training samples: nearest neighbours, and a linear probe."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch.nn.functional import cross_entropy, normalize, one_hot

from rayfl.errors import RayflError
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

STEPS = 500
"""Largest number of steps of the linear probe's fit."""


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
    """Accuracy of a linear classifier fitted to the bank's features.

    The classifier is the minimum of mean cross-entropy + l2 / 2 * ||W||^2 over weights W and a bias, on features that
    are standardised by mean and deviation of the bank. SimSiam's protocol (Chen and He, CVPR 2021, appendix A) takes
    SGD at a rate of 30 instead, whose result depends on the scale of the features: on those of a small network it ends
    up to four points below the minimum, by an amount that differs from model to model.

    Features are computed once, from images without augmentation. Always defined.

    Args:
        l2: Weight of the penalty.
    """

    def __init__(self, l2: NonNegativeFloat = 1e-3) -> None:
        self._l2 = l2

    def value_beside(self, state: State, bank: State) -> float:
        x, y = (torch.from_numpy(bank[name]) for name in ("features", "labels"))
        asked, truth = (torch.from_numpy(state[name]) for name in ("features", "labels"))
        deviation, mean = torch.std_mean(x.double(), dim=0, correction=0)
        deviation[deviation == 0] = 1
        with torch.enable_grad():
            layer = self._fitted((x - mean) / deviation, y.long(), 1 + int(max(y.max(), truth.max())))
        right = layer((asked - mean) / deviation).argmax(dim=1) == truth
        return float(right.double().mean())

    def _fitted(self, x: torch.Tensor, y: torch.Tensor, classes: int) -> torch.nn.Linear:
        layer = torch.nn.Linear(x.shape[1], classes, dtype=torch.float64)
        for parameter in layer.parameters():
            torch.nn.init.zeros_(parameter)
        optimizer = torch.optim.LBFGS(
            layer.parameters(), max_iter=STEPS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
        )

        def objective() -> torch.Tensor:
            optimizer.zero_grad()
            value = cross_entropy(layer(x), y) + self._l2 / 2 * (layer.weight**2).sum()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimizer.step(objective)  # type: ignore[no-untyped-call]
        return layer
