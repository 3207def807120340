"""Directions and planes among model vectors, and the landscapes in them, against plain float64 computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.errors import ScenarioError
from rayfl.models.tensors import Slot
from rayfl.runs.figures.style import drawing
from rayfl.studies.analysis.directions import filter_normalised, plane_of_trajectory, plane_through
from rayfl.studies.analysis.run_folder import RunFolder
from tests.algorithms.scene import people
from tests.callbacks import scene
from tests.studies.analysis.by_hand import forward, tensors
from tests.studies.analysis.scene import analysed, build, finished, opened


def test_every_filter_gets_the_norm_of_the_models_own_and_biases_stay(finished_run: RunFolder) -> None:
    run = opened(finished_run)
    layout = run.workload(6).initial.layout
    model = run.vector(6)
    direction = filter_normalised(model, layout, np.random.default_rng(0))
    ours, theirs = tensors(direction, layout), tensors(model, layout)
    for name, values in ours.items():
        if name.endswith("bias"):
            assert not values.any()
        else:
            np.testing.assert_allclose(np.linalg.norm(values, axis=1), np.linalg.norm(theirs[name], axis=1), rtol=1e-6)
            cosines = (values * theirs[name]).sum(axis=1) / (theirs[name] ** 2).sum(axis=1)
            assert np.abs(cosines).max() < 0.999


def test_filters_of_convolutions_are_found_in_channels_last_memory() -> None:
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(3, 2, 2, 2)).astype(np.float32)  # as PyTorch sees it
    stored = np.ascontiguousarray(weights.transpose(0, 2, 3, 1)).reshape(-1)
    slot = Slot("conv.weight", 0, (3, 2, 2, 2), (8, 1, 4, 2), is_parameter=True)
    direction = filter_normalised(stored, [slot], np.random.default_rng(2))
    in_rows = direction.reshape(3, 2, 2, 2).transpose(0, 3, 1, 2)
    for own, drawn in zip(weights, in_rows, strict=True):
        assert np.linalg.norm(drawn) == pytest.approx(np.linalg.norm(own), rel=1e-6)


def test_a_plane_holds_its_three_models_at_true_distances_and_tells_how_far_others_are() -> None:
    first, second, third, other = np.random.default_rng(3).normal(size=(4, 50))
    plane = plane_through(first, second, third)
    placed = np.array([plane.project(model) for model in (first, second, third)])
    np.testing.assert_allclose(placed[:, 2], 0, atol=1e-12)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        apart = np.linalg.norm((first, second, third)[i] - (first, second, third)[j])
        assert np.linalg.norm(placed[i, :2] - placed[j, :2]) == pytest.approx(apart)
    x, y, distance = plane.project(other)
    assert distance == pytest.approx(np.linalg.norm(other - plane.point(x, y)))
    for step in ((0.1, 0.0), (0.0, -0.1)):
        assert np.linalg.norm(other - plane.point(x + step[0], y + step[1])) > distance


@pytest.mark.parametrize("place", [0, 1])
def test_equal_models_and_models_on_a_line_span_no_plane(place: int) -> None:
    first, second, third = np.random.default_rng(4).normal(size=(3, 20))
    with pytest.raises(ValueError, match="two of the models are equal"):
        plane_through(first, second, (first, second)[place])
    with pytest.raises(ValueError, match="lie on one line"):
        plane_through(first, second, 0.3 * first + 0.7 * second)
    assert plane_through(first, second, third).project(third)[1] > 0


def test_a_trajectorys_plane_is_that_of_the_principal_components() -> None:
    models = np.random.default_rng(5).normal(size=(6, 40)).cumsum(axis=0)
    plane = plane_of_trajectory(models)
    left, values, right = np.linalg.svd(models[:-1] - models[-1], full_matrices=False)
    for number, axis in enumerate((plane.x, plane.y)):
        assert abs(axis @ right[number]) == pytest.approx(1)
    for row, model in enumerate(models[:-1]):
        found = np.abs(plane.project(model)[:2])
        np.testing.assert_allclose(found, np.abs(left[row, :2] * values[:2]), rtol=1e-9)


def test_a_landscape_holds_the_loss_of_the_points_it_says(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("landscape", finished_run, out=tmp_path, models=["initial", "final"], points=5, on="test")
    run, test = opened(finished_run), people().test
    middle = [row["loss"] for row in rows if row["x"] == row["y"] == 0 and row["model"] is None]
    for loss, round in zip(middle, (0, 6), strict=True):
        logits = forward(run.vector(round), run.workload(round).initial.layout, test.x.astype(np.float64))
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        assert loss == pytest.approx(-np.log(chances[np.arange(len(test.y)), test.y]).mean(), rel=1e-5)
    assert len(rows) == 2 * (5 * 5 + 1)


def test_the_name_of_a_phase_stands_for_the_model_at_its_end(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("landscape", finished_run, out=tmp_path, models=["cyclic", 2, "plain"], points=3)
    assert [row["model"] for row in rows if row["model"]] == ["after phase cyclic", "round 2", "after phase plain"]
    losses = [[row["loss"] for row in rows if row["panel"] == panel and not row["model"]] for panel in range(3)]
    assert losses[0] == losses[1]  # the relay has two rounds
    assert losses[0] != losses[2]


def test_planes_and_trajectories_mark_their_models(finished_run: RunFolder, tmp_path: Path) -> None:
    plane = analysed(
        "landscape", finished_run, out=tmp_path / "plane", mode="plane", models=["initial", 2, "final", 4], points=3
    )
    marked = {row["model"]: row for row in plane if row["model"] is not None}
    assert [*marked] == ["initial", "round 2", "final", "round 4"]
    assert [row["distance"] > 1e-6 for row in marked.values()] == [False, False, False, True]
    path = analysed("landscape", finished_run, out=tmp_path / "path", saved=True, mode="trajectory", points=3)
    assert [row["model"] for row in path if row["model"]] == [f"round {number}" for number in range(7)]


@pytest.mark.parametrize("title", ["costs $5 or $6", "$x_{$ of it"])
def test_dollars_in_a_title_are_dollars(title: str, tmp_path: Path) -> None:
    phases = [scene.PLAIN | {"rounds": 3}]
    run = finished(tmp_path, title=title, phases=phases)
    analysed("landscape", run, saved=True, models=["final"], points=3)
    rows = analysed("curve", run, saved=True, window=3, order=1)
    with drawing():
        figure = build("curve", window=3, order=1).draw(rows, [run])
        figure.canvas.draw()
    (text,) = figure.axes[0].get_legend().get_texts()
    assert (text.get_text(), text.get_parse_math()) == (title, False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"points": 4}, "points: 4 is even"),
        ({"mode": "plane", "models": ["final", "final", 3]}, "equal models define no plane"),
        ({"mode": "plane", "models": ["final", 3]}, "a plane requires 3 models, and you named 2"),
        ({"models": [9]}, "has 6 rounds, not 9"),
        ({"models": ["cycli"]}, "has no 'cycli'; did you mean 'cyclic'"),
    ],
)
def test_landscapes_that_make_no_sense_are_rejected(
    finished_run: RunFolder, options: dict[str, object], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        build("landscape", **options).units([finished_run])
