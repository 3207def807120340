"""FedNova against its paper: changes are normalised by ||a_i||_1, which is summed up here step by step."""

from __future__ import annotations

import pytest
import torch

from rayfl.errors import ScenarioError
from tests.algorithms.reference import (
    Vector,
    assert_equal,
    assert_equal_and_unlike,
    fedavg,
    linear,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, prepared, trained


def coefficients(steps: int, momentum: float) -> list[float]:
    """a_i: how often each gradient enters the change: at once, and by what is left of it in every later step."""
    return [sum(momentum**later for later in range(steps - step)) for step in range(steps)]


def fednova(setting: Setting, *, uniform: bool = False, server_lr: float = 1.0) -> Vector:
    """w <- w - tau_eff sum_i p_i eta d_i, where eta d_i = (w - w_i) / ||a_i||_1 and tau_eff = sum_i p_i ||a_i||_1."""
    w = setting.initial()
    for cohort in rounds(setting):
        weights = [1.0] * len(cohort) if uniform else sizes(cohort)
        tau = [sum(coefficients(update.K, setting.local.get("momentum", 0.0))) for update in cohort]
        directions = [(w - update.sgd(w)) / tau_i for update, tau_i in zip(cohort, tau, strict=True)]
        tau_eff = float(mean([torch.tensor(tau_i, dtype=torch.float64) for tau_i in tau], weights))
        w = w - server_lr * tau_eff * mean(directions, weights)
    return w


@pytest.mark.parametrize("setting", [PLAIN, FULL, EVERYTHING], ids=["plain", "full", "everything"])
def test_fednova(setting: Setting) -> None:
    assert_equal_and_unlike(trained("fednova", setting), fednova(setting), fedavg(setting), setting)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_with_momentum_steps_count_by_their_coefficients(momentum: float) -> None:
    setting = PLAIN.with_local(momentum=momentum)
    w = setting.initial()
    for cohort in rounds(setting):
        change = mean([(update.sgd(w) - w) / update.K for update in cohort], sizes(cohort))
        w = w + change * sum(update.n * update.K for update in cohort) / sum(sizes(cohort))
    by_number = w
    assert_equal_and_unlike(trained("fednova", setting), fednova(setting), by_number, setting)


def test_weights_and_server_rate() -> None:
    ours = trained({"name": "fednova", "weighting": "uniform", "server_optimizer": {"name": "sgd", "lr": 0.7}}, PLAIN)
    assert_equal_and_unlike(ours, fednova(PLAIN, uniform=True, server_lr=0.7), fednova(PLAIN), PLAIN)


def test_with_equal_steps_it_is_fedavg() -> None:
    setting = EVERYTHING.with_local(batch_size="full", epochs=4)
    assert_equal(trained("fednova", setting), fedavg(setting), setting)


def test_with_a_proximal_term_steps_count_by_what_it_leaves_of_them() -> None:
    mu, w = 1.5, PLAIN.initial()
    for cohort in rounds(PLAIN):
        tau = [(1 - (1 - update.lr * mu) ** update.K) / (update.lr * mu) for update in cohort]
        ends = [update.sgd(w, penalty=linear(torch.zeros_like(w), mu, w)) for update in cohort]
        directions = [(end - w) / tau_i for end, tau_i in zip(ends, tau, strict=True)]
        tau_eff = sum(n * tau_i for n, tau_i in zip(sizes(cohort), tau, strict=True)) / sum(sizes(cohort))
        w = w + tau_eff * mean(directions, sizes(cohort))
    proximal = {"name": "fednova", "penalties": [{"name": "proximal", "mu": mu}]}
    assert_equal(trained(proximal, PLAIN), w, PLAIN)
    with pytest.raises(ScenarioError, match=r"phases.federated: algorithm.penalties: 'fednova' has no weights of the"):
        prepared(proximal, PLAIN.with_local(momentum=0.5))
