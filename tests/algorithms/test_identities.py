"""What theory says of the algorithms, whatever the numbers: where they meet each other, and where they converge."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.algorithms.reference import PlainUpdate, assert_equal, distance, fedavg, mean, rounds
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained

PLAIN_MEAN = {"name": "fedavg", "weighting": "uniform"}
ONE_STEP = {"batch_size": "full", "epochs": 1}


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedprox", "mu": 0.0},
        {"name": "moon", "mu": 0.0},
        {"name": "feddecorr", "beta": 0.0},
        {"name": "fedavgm", "momentum": 0.0},
    ],
    ids=lambda algorithm: algorithm["name"],
)
def test_without_their_own_term_they_are_fedavg(algorithm: dict[str, Any]) -> None:
    assert_equal(trained(algorithm, EVERYTHING), fedavg(EVERYTHING), EVERYTHING)


@pytest.mark.parametrize("penalty", ["gradient", "decay"])
def test_feddyn_without_alpha_and_its_correction_tends_to_fedavg(penalty: str) -> None:
    """Of one round, since its server adds the mean of p_i whatever alpha is; with less alpha it comes nearer."""
    once = Setting(PLAIN.cohorts, 1, PLAIN.local)
    expected = trained(PLAIN_MEAN, once)
    alphas = (1.0, 1e-2, 1e-4)
    apart = [
        distance(trained({"name": "feddyn", "alpha": alpha, "penalty": penalty}, once), expected, once)
        for alpha in alphas
    ]
    assert apart[0] > 1e-2
    assert apart[1] < 0.02 * apart[0]
    assert apart[2] < 1e-4


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_of_one_client_in_all_is_plain_sgd(option: str) -> None:
    """Its own control variate is the server's, and cancels."""
    alone = Setting([[0]], 4, {**PLAIN.local, "batch_size": 2}, clients=1)
    assert_equal(trained({"name": "scaffold", "option": option}, alone), trained("fedavg", alone), alone)


def test_scaffolds_corrections_cancel_where_everybody_takes_one_step() -> None:
    setting = FULL.with_local(**ONE_STEP)
    assert_equal(trained("scaffold", setting), trained(PLAIN_MEAN, setting), setting)


def test_one_step_from_the_received_model_feels_no_proximal_term() -> None:
    setting = PLAIN.with_local(**ONE_STEP)
    assert torch.equal(trained({"name": "fedprox", "mu": 3.0}, setting), trained("fedavg", setting))


def test_one_step_on_everything_is_gradient_descent_on_all_samples() -> None:
    setting = FULL.with_local(**ONE_STEP)
    w = setting.initial()
    for cohort in rounds(setting):
        w = w - cohort[0].lr * mean([update.full_gradient(w) for update in cohort], [update.n for update in cohort])
    for name in ("fedavg", "fednova"):
        assert_equal(trained(name, setting), w, setting)


def test_moon_compares_with_nothing_where_every_client_comes_once() -> None:
    setting = Setting(((0, 1, 2), (3, 4), (5, 6, 7)), 3, PLAIN.local)
    assert torch.equal(trained({"name": "moon", "mu": 5.0}, setting), trained("fedavg", setting))


def test_moon_at_a_high_temperature_tends_to_fedavg() -> None:
    expected = trained("fedavg", PLAIN)
    apart = [distance(trained({"name": "moon", "tau": tau}, PLAIN), expected, PLAIN) for tau in (0.5, 50.0, 5e3)]
    assert apart[0] > 1e-2
    assert apart[1] < 0.02 * apart[0]
    assert apart[2] < 0.02 * apart[1]


def test_fedadam_without_memory_takes_steps_of_its_rate() -> None:
    """beta_1 = beta_2 = 0 and a tiny tau: every parameter moves by the rate, in the direction of the mean change."""
    once = Setting(PLAIN.cohorts, 1, PLAIN.local)
    options = {"lr": 0.25, "beta_1": 0.0, "beta_2": 0.0, "tau": 1e-9}
    moved = trained({"name": "fedadam", **options}, once) - once.initial()
    change = trained("fedavg", once) - once.initial()
    assert change.abs().min() > 1e-6
    assert torch.allclose(moved, 0.25 * change.sign(), rtol=0, atol=1e-3)


LONG = Setting((tuple(range(4)),), 60, {"batch_size": "full", "epochs": 3, "lr": 0.5, "weight_decay": 0.05}, clients=4)
"""Until nothing moves much; the clients disagree on where their minima are."""


def slope(w: torch.Tensor) -> float:
    """The norm of the gradient of what all clients minimise together, each counting alike."""
    updates = [PlainUpdate(LONG, client, 1) for client in range(LONG.clients)]
    return float((mean([update.full_gradient(w) for update in updates]) + LONG.local["weight_decay"] * w).norm())


@pytest.mark.slow
def test_corrected_algorithms_reach_a_common_minimum_from_which_fedavg_drifts() -> None:
    drifting = slope(trained(PLAIN_MEAN, LONG))
    for name in ("scaffold", "feddyn"):
        for more in ({}, {"correction": "step"} if name == "scaffold" else {"penalty": "decay"}):
            options = {"alpha": 0.3} if name == "feddyn" else {}
            assert slope(trained({"name": name, **options, **more}, LONG)) < drifting / 10
