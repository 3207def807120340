"""FedProx against its objective, f_i(w) + mu / 2 ||w - w_received||^2, differentiated by autograd."""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.reference import Vector, assert_equal_and_unlike, cross_entropy, fedavg, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained


def fedprox(setting: Setting, mu: float, *, uniform: bool = False) -> Vector:
    w = setting.initial()
    for cohort in rounds(setting):

        def objective(y: Vector, x: torch.Tensor, labels: torch.Tensor, received: Vector = w) -> torch.Tensor:
            return cross_entropy(y, x, labels) + mu / 2 * (y - received).square().sum()

        w = mean([update.sgd(w, objective) for update in cohort], None if uniform else sizes(cohort))
    return w


@pytest.mark.parametrize(
    ("setting", "mu"), [(PLAIN, 0.1), (EVERYTHING, 1.5), (FULL, 0.1)], ids=["plain", "everything", "full"]
)
def test_fedprox(setting: Setting, mu: float) -> None:
    ours = trained({"name": "fedprox", "mu": mu}, setting)
    assert_equal_and_unlike(ours, fedprox(setting, mu), fedavg(setting), setting)


def test_clients_may_count_alike() -> None:
    ours = trained({"name": "fedprox", "mu": 0.7, "weighting": "uniform"}, PLAIN)
    assert_equal_and_unlike(ours, fedprox(PLAIN, 0.7, uniform=True), fedprox(PLAIN, 0.7), PLAIN)
