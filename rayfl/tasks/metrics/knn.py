"""Weighted nearest neighbours in feature space, the usual monitor of self-supervised training."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat, PositiveInt
from torch.nn.functional import normalize, one_hot

from rayfl.tasks.metrics.bank_metric import BankMetric
from rayfl.tasks.metrics.metric import State

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
