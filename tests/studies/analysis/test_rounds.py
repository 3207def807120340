"""Gains, random and best convex combinations of a round, against plain float64 computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.runs.archive import RunArchive
from rayfl.studies.analysis.convex import descend
from rayfl.studies.analysis.replay import Replay
from rayfl.studies.analysis.run_folder import RunFolder
from tests.algorithms.scene import people
from tests.studies.analysis.by_hand import forward
from tests.studies.analysis.scene import analysed, opened


def scores_by_hand(vector: np.ndarray, layout: object) -> tuple[float, float]:
    """Loss and accuracy of a TanhNet on the test samples, in float64 and without PyTorch."""
    test = people().test
    logits = forward(vector, layout, test.x.astype(np.float64))
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    loss = -log_probabilities[np.arange(len(test.y)), test.y].mean()
    return float(loss), float((logits.argmax(axis=1) == test.y).mean())


def test_gains_add_up_and_are_those_of_plain_computation(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("gains", finished_run, out=tmp_path)
    recorded = {row["round"]: row for row in RunArchive(finished_run.path).rows}
    run = opened(finished_run)
    layout = run.workload(3).initial.layout
    assert [row["round"] for row in rows] == [3, 4, 5, 6]
    for row in rows:
        assert row["local_gain"] + row["global_gain"] == pytest.approx(row["after"] - row["before"], abs=1e-12)
        assert row["after"] == recorded[row["round"]]["test_accuracy"]
        assert row["loss_after"] == recorded[row["round"]]["test_loss"]
        replayed = Replay(run).round(row["round"])
        each = [scores_by_hand(model, layout) for model in replayed.models]
        mean_loss, mean_accuracy = replayed.weights @ np.array(each)
        assert row["mean_local"] == pytest.approx(mean_accuracy, abs=1e-12)
        assert row["mean_local_loss"] == pytest.approx(mean_loss, rel=1e-6)
        before = scores_by_hand(replayed.before, layout)[1]
        assert row["local_gain"] == pytest.approx(mean_accuracy - before, abs=1e-12)


def test_variance_scores_combinations_on_the_simplex(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("variance", finished_run, out=tmp_path, weights=20, rounds=[4, 6])
    assert [(row["round"], row["draw"]) for row in rows] == [(r, d) for r in (4, 6) for d in range(-1, 20)]
    run = opened(finished_run)
    replayed, layout = Replay(run).round(4), run.workload(4).initial.layout
    corners = [scores_by_hand(model, layout)[0] for model in replayed.models]
    drawn = [row["loss"] for row in rows if row["round"] == 4 and row["draw"] >= 0]
    assert len(set(drawn)) == 20
    assert max(drawn) < max(corners)
    assert rows[0]["loss"] == pytest.approx(scores_by_hand(replayed.after, layout)[0], rel=1e-6)


def test_the_search_finds_a_known_optimum_inside_and_on_the_border() -> None:
    for target in ([0.2, 0.5, 0.3], [0.9, 0.1, 0.0]):
        points = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, -1.0]])
        wanted = np.array(target)

        def objective(weights: np.ndarray, points: np.ndarray = points, wanted: np.ndarray = wanted) -> object:
            off = (weights - wanted) @ points
            return float(off @ off), 2 * points @ off

        for start in ([1 / 3] * 3, [0.01, 0.01, 0.98]):
            found, value = descend(objective, np.array(start), 200)  # type: ignore[arg-type]
            np.testing.assert_allclose(found, wanted, atol=2e-3)
            assert found.sum() == pytest.approx(1)
            assert value < 1e-5


def test_the_best_combination_is_never_below_the_averaged_model(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("convex", finished_run, out=tmp_path, steps=8, saved=True)
    assert [row["round"] for row in rows] == [3, 4, 5, 6]
    run = opened(finished_run)
    for row in rows:
        assert row["best"] >= row["averaged"]
        replayed = Replay(run).round(row["round"])
        model = replayed.combined(np.array(row["weights"]))
        loss, accuracy = scores_by_hand(model, run.workload(row["round"]).initial.layout)
        assert row["best"] == pytest.approx(accuracy)
        assert row["best_loss"] == pytest.approx(loss, rel=1e-5)
    assert any(row["best_loss"] < row["averaged_loss"] - 1e-3 for row in rows)


def test_the_oracle_trains_on_from_its_own_combinations(finished_run: RunFolder, tmp_path: Path) -> None:
    once = analysed("convex", finished_run, out=tmp_path / "once", steps=5)
    rows = analysed("convex", finished_run, out=tmp_path / "throughout", steps=5, throughout=True)
    assert rows[0] == once[0]
    assert [row["averaged"] for row in rows] == [row["averaged"] for row in once]
    assert rows[-1]["best_loss"] != once[-1]["best_loss"]
