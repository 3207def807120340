"""SCAFFOLD against algorithm 1 of its paper, and against the choices of NIID-Bench and FedDyn's code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms import Scaffold, ServerState
from tests.algorithms.reference import Vector, assert_equal_and_unlike, fedavg, linear, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, FULL, LOUD, PLAIN, Setting, trained


def scaffold(
    setting: Setting,
    option: str = "II",
    correction: str = "gradient",
    weighting: str = "uniform",
    server_lr: float = 1.0,
    plain_steps: bool = False,
) -> Vector:
    w = setting.initial()
    c, c_i = torch.zeros_like(w), {client: torch.zeros_like(w) for client in range(setting.clients)}
    for cohort in rounds(setting):
        changes, control_changes = [], []
        for update in cohort:
            own, drift = c_i[update.client], c - c_i[update.client]
            y = update.sgd(w, penalty=linear(drift)) if correction == "gradient" else update.sgd(w, drift=drift)
            rho = setting.local.get("momentum", 0.0) if correction == "gradient" and not plain_steps else 0.0
            steps = sum(
                rho**age for step in range(update.K) for age in range(update.K - step)
            )  # a constant's, momentum's
            new = own - c + (w - y) / (steps * update.lr) if option == "II" else update.full_gradient(w)
            changes.append(y - w)
            control_changes.append(new - own)
            c_i[update.client] = new
        w = w + server_lr * mean(changes, sizes(cohort) if weighting == "samples" else None)
        c = c + sum(control_changes, torch.zeros(())) / setting.clients
    return w


@pytest.mark.parametrize(
    ("setting", "option", "correction"),
    [  # each option with each correction, two of them with momentum and clipping, where the corrections differ
        (FULL, "II", "gradient"),
        (EVERYTHING, "II", "step"),
        (LOUD, "I", "gradient"),
        (EVERYTHING, "I", "step"),
    ],
    ids=["full-II-gradient", "everything-II-step", "loud-I-gradient", "everything-I-step"],
)
def test_scaffold(setting: Setting, option: str, correction: str) -> None:
    """Option I's gradient is one in evaluation mode, which the last network tells."""
    ours = trained({"name": "scaffold", "option": option, "correction": correction}, setting)
    expected = scaffold(setting, option, correction)
    other = scaffold(setting, "I" if option == "II" else "II", correction)
    assert_equal_and_unlike(ours, expected, other, setting)
    assert_equal_and_unlike(ours, expected, fedavg(setting, uniform=True), setting)


@pytest.mark.parametrize(
    "options",
    [{"server_lr": 0.6}, {"weighting": "samples", "server_lr": 1.3, "option": "I"}],
    ids=["server_lr", "both"],
)
def test_the_servers_mean_and_rate(options: dict[str, Any]) -> None:
    """The server control variate is a plain sum over N in each case."""
    rate = {"server_optimizer": {"name": "sgd", "lr": options.get("server_lr", 1.0)}}
    chosen = {key: value for key, value in options.items() if key != "server_lr"}
    ours = trained({"name": "scaffold", **chosen, **rate}, PLAIN)
    assert_equal_and_unlike(ours, scaffold(PLAIN, **options), scaffold(PLAIN), PLAIN)


@pytest.mark.parametrize("local", [{"momentum": 0.8}, {"clip_norm": 0.3}], ids=["momentum", "clipping"])
def test_where_the_correction_enters_matters_with_momentum_or_clipping(local: dict[str, Any]) -> None:
    setting = PLAIN.with_local(**local)
    inside, outside = scaffold(setting, correction="gradient"), scaffold(setting, correction="step")
    ours = trained({"name": "scaffold", "correction": "gradient"}, setting)
    assert_equal_and_unlike(ours, inside, outside, setting)
    assert_equal_and_unlike(trained({"name": "scaffold", "correction": "step"}, setting), outside, inside, setting)


def test_the_full_gradient_of_option_one_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of different sizes, so that a mean of their means would be wrong."""
    monkeypatch.setattr("rayfl.engine.executors.executor.SAMPLES_AT_ONCE", 3)
    ours = trained({"name": "scaffold", "option": "I"}, PLAIN)
    assert_equal_and_unlike(ours, scaffold(PLAIN, "I"), scaffold(PLAIN, "II"), PLAIN)


def test_steps_may_be_counted_plainly_whatever_the_momentum() -> None:
    setting = PLAIN.with_local(momentum=0.8)
    ours = trained({"name": "scaffold", "steps": "plain"}, setting)
    assert_equal_and_unlike(ours, scaffold(setting, plain_steps=True), scaffold(setting), setting)


def test_without_momentum_both_ways_to_count_steps_are_one() -> None:
    assert torch.equal(trained({"name": "scaffold", "steps": "plain"}, PLAIN), trained("scaffold", PLAIN))


class Halved(Scaffold):
    """SCAFFOLD with one change, as a user's file would make it: half of the server's step."""

    def apply(self, server: ServerState, delta: np.ndarray) -> None:
        super().apply(server, delta / 2)


def test_a_subclass_changes_one_thing() -> None:
    expected = trained({"name": "scaffold", "server_optimizer": {"name": "sgd", "lr": 0.5}}, PLAIN)
    assert torch.allclose(trained(f"{__name__}:Halved", PLAIN), expected, atol=1e-6)
    assert not torch.equal(expected, trained("scaffold", PLAIN))
