"""q-FedAvg and q-FedSGD against the steps that their paper lists, with L = 1 / eta written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rayfl.data.dataset import Dataset
from rayfl.engine.events import RoundDone
from rayfl.tasks.supervised import Classification
from tests.algorithms.reference import Vector, assert_equal, assert_equal_and_unlike, mean, rounds
from tests.algorithms.scene import CLASSES, EVERYTHING, FULL, LOUD, PLAIN, Setting, TanhNet, people, prepared, trained
from tests.engine.scenes import run_on_hosts


def supported(setting: Setting) -> Setting:
    """The part of a setting that clients without training support."""
    return replace(setting, local={key: value for key, value in setting.local.items() if key in ("lr", "lr_decay")})


def plain_mean(setting: Setting) -> Vector:
    """FedAvg whose clients train in the second exchange of a round, as q-FedAvg's do."""
    w = setting.initial()
    for cohort in rounds(setting, exchange=1):
        w = mean([update.sgd(w) for update in cohort])
    return w


def qffl(setting: Setting, q: float, *, gradients: bool = False) -> Vector:
    w = setting.initial()
    for cohort in rounds(setting, 0 if gradients else 1):
        directions, curvatures = [], []
        for update in cohort:
            L = 1 / update.lr  # noqa: N806
            F = update.full_loss(w) + 1e-10  # noqa: N806
            dw = update.full_gradient(w) if gradients else L * (w - update.sgd(w))
            directions.append(F**q * dw)
            curvatures.append(q * F ** (q - 1) * float(dw.square().sum()) + L * F**q)
        w = w - sum(directions, torch.zeros(())) / sum(curvatures)
    return w


@pytest.mark.parametrize(
    ("setting", "q"), [(PLAIN, 0.5), (FULL, 2.0), (EVERYTHING, 1.0), (LOUD, 5.0)], ids=["plain", "full", "all", "loud"]
)
def test_qfedavg(setting: Setting, q: float) -> None:
    """F_k is a loss in evaluation mode, which the last network tells."""
    ours = trained({"name": "qfedavg", "q": q}, setting)
    assert_equal_and_unlike(ours, qffl(setting, q), plain_mean(setting), setting)


@pytest.mark.parametrize(("setting", "q"), [(PLAIN, 0.5), (FULL, 2.0), (LOUD, 1.0)], ids=["plain", "full", "loud"])
def test_qfedsgd(setting: Setting, q: float) -> None:
    ours = trained({"name": "qfedsgd", "q": q}, supported(setting))
    assert_equal_and_unlike(ours, qffl(setting, q, gradients=True), qffl(setting, 0.0, gradients=True), setting)


def test_q_is_one_by_default() -> None:
    assert_equal_and_unlike(trained("qfedavg", PLAIN), qffl(PLAIN, 1.0), qffl(PLAIN, 2.0), PLAIN)


def test_with_q_zero_qfedavg_is_the_plain_mean_of_local_models() -> None:
    assert_equal(trained({"name": "qfedavg", "q": 0.0}, EVERYTHING), plain_mean(EVERYTHING), EVERYTHING)


def test_losses_are_means_over_all_samples_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.engine.executors.executor.SAMPLES_AT_ONCE", 3)
    assert_equal(trained({"name": "qfedavg", "q": 2.0}, PLAIN), qffl(PLAIN, 2.0), PLAIN)
    assert_equal(trained({"name": "qfedsgd", "q": 2.0}, supported(PLAIN)), qffl(PLAIN, 2.0, gradients=True), PLAIN)


class Sure(TanhNet):
    """Finds one class far more likely from the start: where all labels are that class, losses are small."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        with torch.no_grad():
            self.read_out.bias[0] += SURENESS


SURENESS = 5.5


class OfOneClass(Classification):
    """Classification that takes samples of a single class, on which losses get as small as a test wants them."""

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        return CLASSES


def agreeing() -> Dataset:
    """All samples are of the first class."""
    data = people()
    train, test = (replace(part, y=np.zeros_like(part.y)) for part in (data.train, data.test))
    return replace(data, train=train, test=test)


def qffl_on_agreeing(setting: Setting, q: float, *, gradients: bool) -> tuple[Vector, Vector, list[float]]:
    """Initial and final model, and the losses of the first cohort; F^q relative to the largest, lest it underflow."""
    initial = setting.initial()
    initial[-CLASSES] += SURENESS
    w, seen = initial, []
    for cohort in rounds(setting, 0 if gradients else 1):
        for update in cohort:
            update.y = torch.zeros_like(update.y)
        losses = [update.full_loss(w) + 1e-10 for update in cohort]
        seen.append(losses)
        directions, curvatures = [], []
        for update, loss in zip(cohort, losses, strict=True):
            relative = loss / max(losses)
            dw = update.full_gradient(w) if gradients else (w - update.sgd(w)) / update.lr
            directions.append(relative**q * dw)
            curvatures.append(q * relative**q / loss * float(dw.square().sum()) + relative**q / update.lr)
        w = w - sum(directions, torch.zeros(())) / sum(curvatures)
    return initial, w, seen[0]


@pytest.mark.parametrize(("name", "q"), [("qfedavg", 4.0), ("qfedavg", 20.0), ("qfedsgd", 4.0), ("qfedsgd", 20.0)])
def test_small_losses_and_large_q_neither_vanish_nor_overflow(name: str, q: float) -> None:
    """At a loss of 0.01, F^4 is 1e-8 and F^20 1e-40: no step may depend on how small the common factor is."""
    initial, expected, losses = qffl_on_agreeing(PLAIN, q, gradients=name == "qfedsgd")
    assert 0.005 < min(losses) < max(losses) < 0.02
    tables = {
        "data": {"name": f"{__name__}:agreeing"},
        "model": {"name": f"{__name__}:Sure"},
        "task": {"name": f"{__name__}:OfOneClass"},
    }
    setting = supported(PLAIN) if name == "qfedsgd" else PLAIN
    job, model = prepared({"name": name, "q": q}, setting, **tables)
    state = model.state_dict(torch.from_numpy(run_on_hosts(job, 2)[0]))
    ours = torch.cat([part.flatten() for part in state.values()]).double()
    moved = expected - initial
    assert moved.norm() > 1e-3
    assert (ours - expected).norm() < 2e-4 * moved.norm()


def test_the_largest_loss_of_the_cohort_is_reported() -> None:
    job, _ = prepared("qfedavg", PLAIN)
    _, events = run_on_hosts(job, 2)
    first = next(event for event in events if isinstance(event, RoundDone))
    w = PLAIN.initial()
    losses = [update.full_loss(w) for update in next(rounds(PLAIN))]
    assert first.scalars["largest_loss"] == pytest.approx(max(losses), rel=1e-5)
