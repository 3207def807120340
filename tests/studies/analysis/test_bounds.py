"""Convergence bounds: their constants on linear regression, whose Hessians are known, and their values by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.errors import DataError, ScenarioError
from rayfl.studies.analysis.convergence import TERMS, Constants, Kind, Training, bound, fitted_spread
from rayfl.studies.analysis.curvature import curvature
from rayfl.studies.analysis.run_folder import RunFolder
from tests.callbacks.scene import PLAIN, RELAY
from tests.studies.analysis.by_hand import tensors
from tests.studies.analysis.scene import analysed, build, finished, opened

SIZES, DECAY = (9, 14, 7, 12), 0.05
LOCAL = {"epochs": 1, "steps": 3, "batch_size": 4, "lr": 0.02, "weight_decay": DECAY}
KINDS: tuple[Kind, ...] = ("strongly convex", "convex", "non-convex")
TRAINING: tuple[Training, ...] = ("relay", "parallel")
ROUND = Constants(
    smoothness=2.0, noise=9.0, slope=4.0, spread=8.0, spread_at_optimum=6.0, gap=5.0, distance=3.0, convexity=0.5
)


def lines() -> Dataset:
    """Four clients with three inputs each; every client has its own line."""
    rng = np.random.default_rng(5)
    owner, test_owner = np.repeat(np.arange(4), SIZES), np.repeat(np.arange(4), 2)
    own = rng.normal(size=(4, 3))

    def samples(owners: np.ndarray) -> Samples:
        x = rng.normal(size=(len(owners), 3)).astype(np.float32)
        return Samples(x, (np.sum(x * own[owners], axis=1) + 0.3 * rng.normal(size=len(owners))).astype(np.float32))

    shards = (Shards.by_owner(owner, 4), Shards.by_owner(test_owner, 4))
    natural = NaturalClients(tuple(f"line {client}" for client in range(4)), *shards)
    return Dataset("lines", samples(owner), samples(test_owner), None, Provenance("arrays", "lines"), natural)


@pytest.fixture(scope="module")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Three rounds of a relay of three clients, then four of two parallel clients."""
    return finished(
        tmp_path_factory.mktemp("linear"),
        data={"name": f"{__name__}:lines"},
        model={"name": "mlp", "hidden": []},
        task="regression",
        phases=[
            RELAY | {"rounds": 3, "cohort": 3, "local": LOCAL},
            PLAIN | {"rounds": 4, "cohort": 2, "local": LOCAL},
        ],
    )


def by_numpy(run: RunFolder, round: int) -> dict[str, float]:
    """The row of a model of the linear run, from gradients X^T (X w - y) 2 / n and Hessians X^T X 2 / n."""
    opened_run, data = opened(run), lines()
    shards, w = opened_run.workload(0).store.train_shards, weights(run, round)
    losses, gradients, around, ends = [], [], [], []
    for client in range(4):
        x = np.concatenate([data.train.x[shards[client]], np.ones((SIZES[client], 1))], axis=1).astype(np.float64)
        wrong = x @ w - data.train.y[shards[client]]
        each = 2 * wrong[:, None] * x
        losses.append(float(np.mean(wrong**2)))
        gradients.append(each.mean(axis=0))
        parts = [each[first : first + 4] for first in range(0, len(each), 4)]
        around.append(sum(len(p) * np.sum((p.mean(axis=0) - gradients[-1]) ** 2) for p in parts) / len(each))
        ends.append(np.linalg.eigvalsh(2 * x.T @ x / len(x))[[0, -1]])
    mean = np.mean(gradients, axis=0)
    return {
        "loss": float(np.mean(losses)),
        "gradient_norm": float(np.linalg.norm(mean)),
        "client_spread": float(np.mean([np.sum((one - mean) ** 2) for one in gradients])),
        "batch_spread": float(np.mean(around)),
        "gradient_along_model": float(mean @ w),
        "model_norm": float(np.linalg.norm(w)),
        "smallest_curvature": min(low for low, _ in ends),
        "largest_curvature": max(high for _, high in ends),
        "steps": float(np.mean([min(3, -(-size // 4)) for size in SIZES])),
        "distance": float(np.linalg.norm(w - weights(run, 0 if round <= 3 else 3))),
    }


def weights(run: RunFolder, round: int) -> np.ndarray:
    held = tensors(opened(run).vector(round), opened(run).workload(0).initial.layout)
    return np.concatenate([held["layers.0.weight"].ravel(), held["layers.0.bias"]])


def test_constants_are_those_of_linear_regression(linear_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("bounds", linear_run, out=tmp_path, rounds=[2, 5], saved=True)
    assert [row["round"] for row in rows] == [0, 2, 3, 5, 7]
    for row in rows:
        expected = by_numpy(linear_run, row["round"])
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=2e-4, abs=1e-6)


def test_findings_follow_from_the_objective_with_weight_decay(linear_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("bounds", linear_run, out=tmp_path)
    said = build("bounds").findings(rows, [linear_run])
    expected = {round: by_numpy(linear_run, round) for round in (0, 3, 7)}
    losses = {n: one["loss"] + DECAY / 2 * one["model_norm"] ** 2 for n, one in expected.items()}
    squares = {n: np.sum((mean_gradient(linear_run, n) + DECAY * weights(linear_run, n)) ** 2) for n in expected}
    assert losses[0] > losses[3] > losses[7]
    for name, start, end, clients in (("cyclic", 0, 3, 3), ("plain", 3, 7, 2)):
        (line,) = [line for line in said if line.startswith(f"phase    {name}:")]
        found = {key: float(value) for key, value in re.findall(r"(\S+) (-?[\d.e+-]+)(?:,|$)", line)}
        smallest, largest = expected[0]["smallest_curvature"], expected[0]["largest_curvature"]
        assert found == pytest.approx(
            found
            | {
                "S": clients,
                "K": expected[0]["steps"],
                "A": losses[start] - losses[end],
                "D": np.linalg.norm(weights(linear_run, start) - weights(linear_run, end)),
                "L": largest + DECAY,
                "mu": smallest + DECAY,
                "sigma^2": max(one["batch_spread"] for one in expected.values()),
                "zeta_*^2": expected[end]["client_spread"] + squares[end],
            },
            rel=1e-3,
        )
        for n, one in expected.items():
            assert one["client_spread"] <= (found["zeta^2"] + found["beta^2"] * squares[n]) * 1.001
        constants = Constants(*(found[key] for key in ("L", "sigma^2", "beta^2", "zeta^2", "zeta_*^2", "A", "D", "mu")))
        for kind in KINDS:
            (line,) = [line for line in said if line.startswith(f"bound    {name}, {kind}:")]
            values = [
                bound(kind, one, constants, clients, found["K"], np.array([end - start])).sum() for one in TRAINING
            ]
            read = [float(value) for value in re.findall(r"(?:relay|parallel) ([\d.e+-]+)", line)]
            assert read == pytest.approx([*values, values[0] / values[1]], rel=5e-3)


def mean_gradient(run: RunFolder, round: int) -> np.ndarray:
    data, shards, w = lines(), opened(run).workload(0).store.train_shards, weights(run, round)
    x = [np.concatenate([data.train.x[shards[i]], np.ones((SIZES[i], 1))], axis=1) for i in range(4)]
    each = [2 * x[i].T @ (x[i] @ w - data.train.y[shards[i]]) / SIZES[i] for i in range(4)]
    return np.asarray(np.mean(each, axis=0))


def test_a_network_is_not_convex_which_is_said(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("bounds", finished_run, out=tmp_path)
    assert min(row["smallest_curvature"] for row in rows) < 0
    said = build("bounds").findings(rows, [finished_run])
    (left_out,) = [line for line in said if "strongly convex" in line]
    assert re.search(r"the smallest measured curvature \(weight decay included\) is -[\d.]+, not positive$", left_out)


def test_of_a_phase_whose_loss_does_not_fall_nothing_is_bounded(linear_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("bounds", linear_run, out=tmp_path)
    worse = [row | {"loss": row["loss"] + 100 * row["round"]} for row in rows]
    said = build("bounds").findings(worse, [linear_run])
    assert sum("no measured model has a smaller loss than the start" in line for line in said) == 2
    assert not build("bounds").draw(worse, [linear_run]).axes


def test_values_of_the_bounds_are_those_computed_by_hand() -> None:
    """S = 4, K = 8, T = 2: S K T = 64, s K T^2 = 128 or 32, s T^2 = 16 or 4."""
    by_hand: dict[tuple[Kind, Training], list[float]] = {
        ("strongly convex", "relay"): [9 / 32, 18 / 32, 12 / 4, 4.5 * np.exp(-1 / 24)],
        ("strongly convex", "parallel"): [9 / 32, 18 / 8, 12, 4.5 * np.exp(-1 / 24)],
        ("convex", "relay"): [9 / 8, (1458 / 128) ** (1 / 3), (972 / 16) ** (1 / 3), 9],
        ("convex", "parallel"): [9 / 8, (1458 / 32) ** (1 / 3), (972 / 4) ** (1 / 3), 9],
        ("non-convex", "relay"): [(90 / 64) ** 0.5, (900 / 128) ** (1 / 3), (800 / 16) ** (1 / 3), 15],
        ("non-convex", "parallel"): [(90 / 64) ** 0.5, (900 / 32) ** (1 / 3), (800 / 4) ** (1 / 3), 15],
    }
    for (kind, training), terms in by_hand.items():
        assert bound(kind, training, ROUND, 4, 8, np.array([2.0]))[:, 0] == pytest.approx(terms)


@given(st.floats(1, 200), st.floats(1, 50), st.floats(1, 1000))
def test_clients_share_the_drift_of_a_relay(clients: float, steps: float, rounds: float) -> None:
    for kind, ratio in (("strongly convex", 1 / clients), ("convex", clients ** (-1 / 3)), ("non-convex", None)):
        relay, parallel = (bound(kind, one, ROUND, clients, steps, np.array([rounds]))[:, 0] for one in TRAINING)  # type: ignore[arg-type]
        ratio = clients ** (-1 / 3) if ratio is None else ratio
        assert relay / parallel == pytest.approx([1, ratio, ratio, 1])


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_every_term_has_the_unit_of_what_it_bounds(loss: float, weight: float) -> None:
    """Another unit of the loss, and another of the weights."""
    squared_gradient, curved = (loss / weight) ** 2, loss / weight**2
    other = Constants(
        smoothness=ROUND.smoothness * curved,
        noise=ROUND.noise * squared_gradient,
        slope=ROUND.slope,
        spread=ROUND.spread * squared_gradient,
        spread_at_optimum=ROUND.spread_at_optimum * squared_gradient,
        gap=ROUND.gap * loss,
        distance=ROUND.distance * weight,
        convexity=ROUND.convexity * curved,
    )
    for kind in KINDS:
        for training in TRAINING:
            was, now = (bound(kind, training, one, 4, 8, np.array([2.0, 9.0])) for one in (ROUND, other))
            assert now / was == pytest.approx(np.full((len(TERMS), 2), squared_gradient if kind == KINDS[2] else loss))


@given(st.lists(st.floats(0.01, 100), min_size=6, max_size=6), st.integers(1, 50), st.integers(1, 500))
def test_bounds_balance_the_terms_over_the_learning_rate(values: list[float], clients: int, rounds: int) -> None:
    """The smallest value over eta is between a quarter of the sum of the terms and twice it."""
    smooth, noise, spread, gap, slope, steps = values
    of = Constants(smooth, noise, slope, spread, spread, gap, gap, 0.0)
    for training, apart in (("relay", clients), ("parallel", 1)):
        for kind, start, factor, least in (
            ("convex", gap**2, 1.0, smooth),
            ("non-convex", gap, smooth, smooth * (1 + slope**0.5)),
        ):

            def at(
                exponent: float, start: float = start, f: float = factor, apart: int = apart, m: float = least
            ) -> Any:
                eta = np.exp(exponent) / m
                drift = noise / (apart * steps) + spread / apart
                return start / (eta * rounds) + f * (eta * noise / (clients * steps) + eta**2 * smooth * drift)

            best = minimize_scalar(at, bounds=(-40, 0), method="bounded", options={"xatol": 1e-8}).fun
            best = min(best, at(0.0))
            total = float(bound(kind, training, of, clients, steps, np.array([rounds])).sum())  # type: ignore[arg-type]
            assert total / 4 <= best * (1 + 1e-6) <= 2 * total * (1 + 1e-6)


def test_the_line_above_all_spreads_is_the_tightest() -> None:
    gradients = np.array([0.0, 1.0, 4.0])
    assert fitted_spread(gradients, 3 * gradients + 2) == pytest.approx((3, 2))
    assert fitted_spread(gradients, np.array([5.0, 4.0, 1.0])) == pytest.approx((0, 5))
    assert fitted_spread(gradients, np.array([0.0, 1.0, 6.0])) == pytest.approx((1.5, 0))
    assert fitted_spread(np.zeros(2), np.zeros(2)) == (0, 0)


def test_curvature_finds_the_ends_of_a_spectrum() -> None:
    rng = np.random.default_rng(2)
    for size, shift in ((1, 1.0), (6, 0.0), (6, 20.0), (60, 0.0)):
        half = rng.normal(size=(size, size))
        matrix = half + half.T + shift * np.eye(size)
        start, padded = np.zeros(size + 3), np.zeros((size + 3, size + 3))
        start[2:-1], padded[2:-1, 2:-1] = rng.normal(size=size), matrix
        values = np.linalg.eigvalsh(matrix)
        found = curvature(padded.__matmul__, start)
        assert found == pytest.approx((np.abs(values).max(), values[0]), rel=5e-3)


def test_a_smallest_eigenvalue_that_may_be_zero_is_zero() -> None:
    rng = np.random.default_rng(2)
    values = np.linspace(0, 1, 2000)
    assert curvature(lambda along: values * along, rng.normal(size=2000)).smallest == 0
    assert curvature(lambda along: (values + 1) * along, rng.normal(size=2000)).smallest == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "options", "error", "said"),
    [
        ({}, {"rounds": [7]}, ScenarioError, "rounds: the run '.*' has 6 rounds, not 7"),
        ({"named": ()}, {"rounds": [1]}, DataError, "lacks the model after round 1 .* run the scenario again"),
        (
            {"phases": [{"name": "whole", "schedule": "central", "rounds": 2}]},
            {},
            ScenarioError,
            "has no relay and no parallel phase",
        ),
        (
            {"phases": [RELAY, PLAIN | {"head": "fresh"}]},
            {},
            DataError,
            r"phases\.plain: it does not begin with the model that the phase before it ends with",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, changes: Any, options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        analysed("bounds", finished(tmp_path, **changes), out=tmp_path, **options)
    assert "\n" not in str(raised.value)
