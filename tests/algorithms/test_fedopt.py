"""Server optimisers against the update rules of Hsu et al. 2019 and of Reddi et al. 2021, algorithm 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.algorithms.reference import Vector, assert_equal_and_unlike, fedavg, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained

Server = Callable[[Vector], Vector]
"""From the cohort's mean change to the server's step; remembers what it needs."""


def federated(setting: Setting, server: Server, *, uniform: bool = False) -> Vector:
    w = setting.initial()
    for cohort in rounds(setting):
        change = mean([update.sgd(w) - w for update in cohort], None if uniform else sizes(cohort))
        w = w + server(change)
    return w


def momentum_server(beta: float, rate: float) -> Server:
    """Hsu et al.: v <- beta v + change, w <- w + rate v."""
    v = torch.zeros(())

    def step(change: Vector) -> Vector:
        nonlocal v
        v = beta * v + change
        return rate * v

    return step


def dampened_server(beta: float) -> Server:
    """MOON's code: d = w - mean, m <- beta m + (1 - beta) d, w <- w - m."""
    m = torch.zeros(())

    def step(change: Vector) -> Vector:
        nonlocal m
        m = beta * m + (1 - beta) * -change
        return -m

    return step


def adaptive_server(kind: str, rate: float, tau: float, beta_1: float, beta_2: float = 0.99) -> Server:
    """Reddi et al., algorithm 2, lines 10 to 15, with v_{-1} = tau^2 and no bias correction."""
    m, v = torch.zeros(()), torch.tensor(tau**2, dtype=torch.float64)

    def step(change: Vector) -> Vector:
        nonlocal m, v
        m = beta_1 * m + (1 - beta_1) * change
        if kind == "fedadagrad":
            v = v + change**2
        elif kind == "fedyogi":
            v = v - (1 - beta_2) * change**2 * torch.sign(v - change**2)
        else:
            v = beta_2 * v + (1 - beta_2) * change**2
        return rate * m / (torch.sqrt(v) + tau)

    return step


def test_fedavgm() -> None:
    ours = trained({"name": "fedavgm", "momentum": 0.5, "lr": 0.7}, EVERYTHING)
    expected = federated(EVERYTHING, momentum_server(0.5, 0.7))
    assert_equal_and_unlike(ours, expected, fedavg(EVERYTHING), EVERYTHING)


@pytest.mark.parametrize("momentum", [0.3, 0.9])
def test_fedavgm_dampened_as_in_moons_code(momentum: float) -> None:
    ours = trained({"name": "fedavgm", "momentum": momentum, "dampened": True}, PLAIN)
    expected = federated(PLAIN, dampened_server(momentum))
    assert_equal_and_unlike(ours, expected, federated(PLAIN, momentum_server(momentum, 1.0)), PLAIN)


USUAL: dict[str, Any] = {"lr": 0.1, "tau": 0.03}
OTHER: dict[str, Any] = {"lr": 0.3, "tau": 0.1, "beta_1": 0.5}


@pytest.mark.parametrize(
    ("name", "options", "setting"),
    [  # each server with its own and another memory; it sees nothing of how clients train
        ("fedadagrad", USUAL, PLAIN),
        ("fedadagrad", OTHER, FULL),
        ("fedadam", USUAL, EVERYTHING),
        ("fedadam", OTHER, PLAIN),
        ("fedyogi", USUAL, PLAIN),
        ("fedyogi", OTHER, EVERYTHING),
    ],
)
def test_adaptive_servers(name: str, options: dict[str, Any], setting: Setting) -> None:
    beta_1 = options.get("beta_1", 0.0 if name == "fedadagrad" else 0.9)
    server = adaptive_server(name, options["lr"], options["tau"], beta_1)
    ours = trained({"name": name, **options}, setting)
    assert_equal_and_unlike(ours, federated(setting, server), fedavg(setting), setting)


@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_beta_2_is_the_memory_of_the_second_moment(name: str) -> None:
    options = {"lr": 0.2, "tau": 0.05, "beta_1": 0.7}
    ours = trained({"name": name, "beta_2": 0.6, **options}, PLAIN)
    expected = federated(PLAIN, adaptive_server(name, 0.2, 0.05, 0.7, 0.6))
    other = federated(PLAIN, adaptive_server(name, 0.2, 0.05, 0.7, 0.7))
    assert_equal_and_unlike(ours, expected, other, PLAIN)


def test_adam_and_yogi_part_where_the_second_moment_falls() -> None:
    """Long steps, then short ones: Yogi forgets more slowly."""
    setting = PLAIN.with_local(lr_decay=0.2)
    adam, yogi = (federated(setting, adaptive_server(name, 0.2, 0.01, 0.9, 0.5)) for name in ("fedadam", "fedyogi"))
    options = {"lr": 0.2, "tau": 0.01, "beta_2": 0.5}
    assert_equal_and_unlike(trained({"name": "fedadam", **options}, setting), adam, yogi, setting)
    assert_equal_and_unlike(trained({"name": "fedyogi", **options}, setting), yogi, adam, setting)


def test_the_defaults_are_those_of_the_paper() -> None:
    """Reddi et al., section 5 and appendix D: beta_1 = 0.9 (0 for Adagrad), beta_2 = 0.99, tau = 1e-3."""
    for name in ("fedadagrad", "fedadam", "fedyogi"):
        server = adaptive_server(name, 0.1, 1e-3, 0.0 if name == "fedadagrad" else 0.9)
        expected = federated(PLAIN, server)
        # tau is smaller than most changes, so that a step is almost a sign, and amplifies rounding
        assert float((trained(name, PLAIN) - expected).norm() / (expected - PLAIN.initial()).norm()) < 1e-4
