"""What theory says of the algorithms, whatever the numbers: where they meet each other, and where they converge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.scaffold import SCAFFOLD
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from tests.algorithms.reference import PlainUpdate, assert_equal, distance, mean, rounds
from tests.algorithms.scene import EVERYBODY, EVERYTHING, FULL, PLAIN, Setting, trained

PLAIN_MEAN = {"name": "fedavg", "weighting": "uniform"}
ONE_STEP = {"batch_size": "full", "epochs": 1}


@pytest.mark.parametrize("setting", [PLAIN, EVERYTHING], ids=["plain", "everything"])
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
def test_without_their_own_term_they_are_fedavg(algorithm: dict[str, Any], setting: Setting) -> None:
    assert_equal(trained(algorithm, setting), trained("fedavg", setting), setting, tolerance=1e-6)


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


def test_fedexp_of_one_participant_is_fedavg() -> None:
    alone = Setting([[3], [7], [3]], 3, PLAIN.local)
    assert_equal(trained("fedexp", alone, eval_model="global"), trained("fedavg", alone), alone)


def test_fedadam_without_memory_takes_steps_of_its_rate() -> None:
    """beta_1 = beta_2 = 0 and a tiny tau: every parameter moves by the rate, in the direction of the mean change."""
    once = Setting(PLAIN.cohorts, 1, PLAIN.local)
    options = {"lr": 0.25, "beta_1": 0.0, "beta_2": 0.0, "tau": 1e-9}
    moved = trained({"name": "fedadam", **options}, once) - once.initial()
    change = trained("fedavg", once) - once.initial()
    assert change.abs().min() > 1e-6
    assert torch.allclose(moved, 0.25 * change.sign(), rtol=0, atol=1e-3)


CONTROLS: dict[int, torch.Tensor] = {}
SERVER_CONTROLS: list[np.ndarray] = []


class WatchedSCAFFOLD(SCAFFOLD):
    """Shows what it keeps."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield from super().round(server, context)
        SERVER_CONTROLS.append(server.state["control"])

    def controlled_update(
        self, client: ClientContext, model: torch.Tensor, control: torch.Tensor
    ) -> ClientUpdate[Answer]:
        answer = yield from super().controlled_update(client, model, control)
        CONTROLS[client.id] = client.state["control"].clone()
        return answer


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("cohorts", [EVERYBODY, PLAIN.cohorts], ids=["full", "partial"])
def test_scaffolds_server_control_is_the_mean_of_all_clients_ones(
    cohorts: Sequence[Sequence[int]], option: str
) -> None:
    """Of those that never took part too, whose are zero: that is what the division by N is for."""
    CONTROLS.clear()
    SERVER_CONTROLS.clear()
    setting = Setting(cohorts, 4, PLAIN.local)
    trained({"name": f"{__name__}:WatchedSCAFFOLD", "option": option}, setting)
    total = torch.stack(list(CONTROLS.values())).double().sum(dim=0)
    assert total.norm() > 0.1
    assert np.allclose(SERVER_CONTROLS[-1], total / setting.clients, rtol=0, atol=1e-6)


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
