"""FedBug's two-client theory: its closed forms against integration and simulation, and the reference values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rayfl.errors import ScenarioError
from rayfl.studies.analysis.linear_theory import (
    Weights,
    contraction_bound,
    contraction_ratio,
    draw_weights,
    main,
    methods,
    simulate,
)
from rayfl.studies.analysis.linear_theory_figure import draw, records

REFERENCE = {0: 0.800, 1: 0.709, 5: 0.561, 10: 0.515, 25: 0.500, None: 0.500}
positive = st.floats(0.05, 2)


def integrated(first: float, last: float) -> tuple[float, float]:
    """The state of gradient flow on (first * last - 1)^2 after a long time, by Runge-Kutta of order 4."""

    def slope(w: np.ndarray) -> np.ndarray:
        downhill: np.ndarray = -2 * (w[0] * w[1] - 1) * w[::-1]
        return downhill

    w, h = np.array([first, last]), 0.02
    for _ in range(600):
        k1 = slope(w)
        k2 = slope(w + h / 2 * k1)
        k3 = slope(w + h / 2 * k2)
        k4 = slope(w + h * k3)
        w = w + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return float(w[0]), float(w[1])


@pytest.mark.slow
@given(positive, positive)
def test_many_small_steps_follow_the_flow(first: float, last: float) -> None:
    start = Weights(*(np.array([value]) for value in (first, first, last)))
    trained = simulate(start, rounds=1, steps=4000, lr=0.001, frozen_steps=0)
    # Both clients start alike, so that v is what either has; a and b come back half way.
    a, v = integrated(first, last)
    np.testing.assert_allclose(trained.v[1], v, atol=0.02)
    np.testing.assert_allclose(trained.a[1], (a + first) / 2, atol=0.02)


def trained_by_pytorch(start: tuple[float, float, float], rounds: int, frozen_steps: int) -> list[float]:
    """(a, b, v) of one start: the network itself, PyTorch's gradients, the server's mean of all parameters."""
    first, last = torch.tensor(start[:2], dtype=torch.float64), torch.tensor(start[2], dtype=torch.float64)
    for _ in range(rounds):
        models = []
        for x in torch.eye(2, dtype=torch.float64):
            layers = [first.clone().requires_grad_(), last.clone().requires_grad_()]
            for step in range(50):
                loss = (x @ layers[0] * layers[1] - 1) ** 2
                trains = layers[: 1 if step < frozen_steps else 2]
                for weight, gradient in zip(trains, torch.autograd.grad(loss, trains), strict=True):
                    weight.data -= 0.1 * gradient
            models.append([weight.detach() for weight in layers])
        first, last = ((one + other) / 2 for one, other in zip(*models, strict=True))
    return [*first.tolist(), float(last)]


@pytest.mark.parametrize("frozen_steps", [0, 5])
def test_the_simulation_is_federated_averaging_of_the_linear_network(frozen_steps: int) -> None:
    start = draw_weights(3)
    history = simulate(start, rounds=4, steps=50, lr=0.1, frozen_steps=frozen_steps)
    for seed in range(3):
        expected = trained_by_pytorch((start.a[seed], start.b[seed], start.v[seed]), 4, frozen_steps)
        np.testing.assert_allclose([weight[-1, seed] for weight in history], expected, rtol=1e-12)


def test_more_seeds_keep_the_starts_of_fewer() -> None:
    np.testing.assert_array_equal(np.stack(draw_weights(7))[:, :3], np.stack(draw_weights(3)))


@pytest.fixture(scope="module")
def histories() -> dict[int | None, Weights]:
    start = draw_weights(50)
    return {frozen: simulate(start, rounds=80, steps=50, lr=0.1, frozen_steps=frozen) for frozen in REFERENCE}


@pytest.mark.parametrize("frozen_steps", REFERENCE)
def test_contraction_ratios_have_the_reference_values_in_theory_and_simulation(
    histories: dict[int | None, Weights], frozen_steps: int | None
) -> None:
    history = histories[frozen_steps]
    a, b, v = (weight[-1] for weight in history)
    # Printed with three decimals; 0.0001 for the rounding of the reference itself.
    expected = pytest.approx(REFERENCE[frozen_steps], abs=6e-4)
    assert np.median(contraction_ratio(history)) == expected
    assert np.median(contraction_bound((a + b) / 2, v, 0.1, frozen_steps)) == expected


@pytest.mark.parametrize("frozen_steps", [0, 1, 5, 10, 25])
def test_theory_holds_for_every_seed(histories: dict[int | None, Weights], frozen_steps: int) -> None:
    history = histories[frozen_steps]
    a, b, v = (weight[-1] for weight in history)
    theory = contraction_bound((a + b) / 2, v, 0.1, frozen_steps)
    np.testing.assert_allclose(contraction_ratio(history), theory, atol=1e-4)


@pytest.mark.parametrize(("frozen_steps", "loss"), [(0, 1.7e-5), (1, 1.6e-7), (5, 7e-12)])
def test_losses_after_round_20_have_the_reference_values(
    histories: dict[int | None, Weights], frozen_steps: int, loss: float
) -> None:
    # Given with one or two digits.
    assert np.median(histories[frozen_steps].loss[20]) == pytest.approx(loss, rel=0.04)


@given(positive, positive, st.floats(0.001, 0.1), st.integers(0, 30), st.floats(0, 0.5))
def test_every_frozen_step_lowers_the_bound_towards_that_of_a_fixed_last_layer(
    first: float, last: float, lr: float, frozen_steps: int, alpha: float
) -> None:
    a, v = np.array(first), np.array(last)
    bounds = [contraction_bound(a, v, lr, frozen, alpha) for frozen in (frozen_steps, frozen_steps + 1, None)]
    assert bounds[0] >= bounds[1] >= bounds[2] == 0.5


def test_the_bounds_are_the_papers_for_no_and_one_frozen_step() -> None:
    # a = 2, v = 1: cos^2 = 4 / 5. The paper's step size is 2 lr = 0.2, for its loss is half of this one.
    a, v = np.array(2.0), np.array(1.0)
    assert contraction_bound(a, v, 0.1, 0) == pytest.approx((1 + 0.8) / 2)
    assert contraction_bound(a, v, 0.1, 0, alpha=0.1) == pytest.approx((1 + 0.8 * 1.1) / 2)
    assert contraction_bound(a, v, 0.1, 1) == pytest.approx((1 + 0.8 * 0.8) / 2)


def test_clients_that_start_alike_have_no_ratio() -> None:
    start = Weights(*(np.array(values) for values in ([0.5, 0.5], [0.5, 1.5], [1.0, 1.0])))
    ratios = contraction_ratio(simulate(start, rounds=20, steps=50, lr=0.1, frozen_steps=0))
    assert np.isnan(ratios[0])
    assert 0.5 < ratios[1] < 1


def test_training_that_diverges_is_rejected() -> None:
    with pytest.raises(ScenarioError, match="lr: training diverged with 3; choose a smaller one"):
        simulate(draw_weights(5), rounds=20, steps=50, lr=3, frozen_steps=0)


def test_the_command_prints_a_row_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "20"]) == 0
    printed = capsys.readouterr().out
    assert "50 seeds, 20 rounds of 50 local steps, lr 0.1" in printed
    for row in ("FedAvg             0.800       0.800", "25 frozen steps    0.500", "v always fixed     0.500"):
        assert row in printed


def test_the_records_have_every_seed_and_round_with_its_ratio() -> None:
    found = methods(seeds=3, rounds=20, steps=10, lr=0.1)
    rows = records(found).to_pylist()
    assert len(rows) == 4 * 3 * 21  # 0, 1 and 5 frozen steps, and v fixed
    places = [(method.name, seed, round) for method in found for seed in range(3) for round in range(21)]
    assert [(row["method"], row["seed"], row["round"]) for row in rows] == places
    last_fixed = [row for row in rows if row["frozen_steps"] is None]
    assert len({row["v"] for row in last_fixed}) == 3
    before: Any = None
    for row in rows:
        assert row["discrepancy"] == abs(row["a"] - row["b"])
        assert row["loss"] == pytest.approx(((row["a"] * row["v"] - 1) ** 2 + (row["b"] * row["v"] - 1) ** 2) / 2)
        if row["round"] == 0:
            assert row["ratio"] is None
        elif before["discrepancy"] > 1e-10:
            assert row["ratio"] == pytest.approx(row["discrepancy"] / before["discrepancy"])
        before = row
    # with v fixed, every local step brings a - b, of which the server takes half, nearer by 1 - 2 lr v^2
    for row in last_fixed:
        if row["ratio"] is not None:
            assert row["ratio"] == pytest.approx((1 + (1 - 2 * 0.1 * row["v"] ** 2) ** 10) / 2, abs=1e-5)


def test_the_command_draws_theory_against_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "20", "--seeds", "5", "--out", str(tmp_path / "figure")]) == 0
    files = [tmp_path / "figure" / f"linear_theory.{suffix}" for suffix in ("parquet", "png", "pdf")]
    assert capsys.readouterr().out.split()[-3:] == [str(file) for file in files]
    assert all(file.stat().st_size > 1000 for file in files)
    found = methods(seeds=5, rounds=20, steps=50, lr=0.1)
    panels: Any = draw(found).axes
    scatter, losses, *_ = panels
    for method, line in zip(found, scatter.lines, strict=False):
        assert line.get_xdata().tolist() == method.theory.tolist()
        assert line.get_ydata().tolist() == contraction_ratio(method.history).tolist()
    np.testing.assert_allclose(losses.lines[0].get_ydata(), np.median(found[0].history.loss, axis=1))
    assert not [label for label in losses.get_yticklabels() if "$" in label.get_text()], "texts are no formulas"


def test_the_command_names_a_folder_that_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--rounds", "20", "--seeds", "5", "--out", str(tmp_path / "file")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert str(tmp_path / "file") in error
    assert error.count("\n") == 1


def test_the_command_compares_only_as_many_frozen_steps_as_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "20", "--seeds", "5", "--steps", "10"]) == 0
    printed = capsys.readouterr().out
    assert "5 frozen steps" in printed
    assert "10 frozen steps" not in printed


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rounds", "19"])
    assert "--rounds at least 20" in capsys.readouterr().err
    assert main(["--lr", "3"]) == 1
    assert capsys.readouterr().err == "error: lr: training diverged with 3; choose a smaller one\n"
