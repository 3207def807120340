"""q-FedAvg and q-FedSGD against the steps that their paper lists, with L = 1 / eta written out."""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.reference import Vector, assert_equal, assert_equal_and_unlike, fedavg, mean, rounds
from tests.algorithms.scene import EVERYTHING, FULL, LOUD, PLAIN, Setting, trained


def qffl(setting: Setting, q: float, *, gradients: bool = False) -> Vector:
    w = setting.initial()
    for cohort in rounds(setting):
        directions, curvatures = [], []
        for visit in cohort:
            L = 1 / visit.lr  # noqa: N806
            F = visit.full_loss(w) + 1e-10  # noqa: N806
            dw = visit.full_gradient(w) if gradients else L * (w - visit.sgd(w))
            directions.append(F**q * dw)
            curvatures.append(q * F ** (q - 1) * float(dw.square().sum()) + L * F**q)
        w = w - sum(directions, torch.zeros(())) / sum(curvatures)
    return w


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("setting", [PLAIN, FULL, EVERYTHING, LOUD], ids=["plain", "full", "everything", "loud"])
def test_qfedavg(setting: Setting, q: float) -> None:
    """F_k is a loss in evaluation mode, which the last network tells."""
    ours = trained({"name": "qfedavg", "q": q}, setting)
    assert_equal_and_unlike(ours, qffl(setting, q), fedavg(setting, uniform=True), setting)


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("setting", [PLAIN, FULL, LOUD], ids=["plain", "full", "loud"])
def test_qfedsgd(setting: Setting, q: float) -> None:
    ours = trained({"name": "qfedsgd", "q": q}, setting)
    assert_equal_and_unlike(ours, qffl(setting, q, gradients=True), qffl(setting, 0.0, gradients=True), setting)


def test_q_is_one_by_default() -> None:
    assert_equal_and_unlike(trained("qfedavg", PLAIN), qffl(PLAIN, 1.0), qffl(PLAIN, 2.0), PLAIN)


def test_with_q_zero_qfedavg_is_the_plain_mean_of_local_models() -> None:
    for setting in (PLAIN, FULL, EVERYTHING):
        assert_equal(trained({"name": "qfedavg", "q": 0.0}, setting), fedavg(setting, uniform=True), setting)


def test_with_q_zero_qfedsgd_is_gradient_descent_on_the_mean_of_the_losses() -> None:
    w = FULL.initial()
    for cohort in rounds(FULL):
        w = w - cohort[0].lr * mean([visit.full_gradient(w) for visit in cohort])
    assert_equal(trained({"name": "qfedsgd", "q": 0.0}, FULL), w, FULL)


def test_one_step_on_everything_makes_qfedavg_qfedsgd() -> None:
    setting = PLAIN.with_local(batch_size="full", epochs=1)
    ours, other = (trained({"name": name, "q": 2.0}, setting) for name in ("qfedavg", "qfedsgd"))
    assert_equal(ours, other, setting)


def test_losses_are_means_over_all_samples_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.local.client.EXAMPLES_AT_ONCE", 3)
    assert_equal(trained({"name": "qfedavg", "q": 2.0}, PLAIN), qffl(PLAIN, 2.0), PLAIN)
    assert_equal(trained({"name": "qfedsgd", "q": 2.0}, PLAIN), qffl(PLAIN, 2.0, gradients=True), PLAIN)
