"""Smoothed curves and targets, against plain computation on the records of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomli_w
from rich.console import Console

import rayfl
from rayfl.errors import ScenarioError
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.recorded_run import DataNote
from rayfl.studies.analysis.analysis import names_of, new_figure
from rayfl.studies.analysis.curve import first_reaching, switch_of
from rayfl.studies.analysis.run_folder import RunFolder
from tests.algorithms.scene import SIZES
from tests.callbacks import scene
from tests.studies.analysis.scene import analysed, build, finished


def test_the_curve_is_the_least_squares_polynomial_in_every_window(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("curve", finished_run, out=tmp_path, window=5, order=2)
    points = [row for row in rows if row["round"] is not None]
    values = np.array([row["test_accuracy"] for row in RunArchive(finished_run.path).rows])
    assert [row["value"] for row in points] == values.tolist()
    for place in range(len(values)):
        first = min(max(place - 2, 0), len(values) - 5)  # at the ends the outermost window's polynomial goes on
        fitted = np.polynomial.Polynomial.fit(np.arange(first, first + 5), values[first : first + 5], 2)
        assert points[place]["smoothed"] == pytest.approx(fitted(place), abs=1e-9)


def test_batches_of_clients_are_counted(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("curve", finished_run, out=tmp_path, window=3, order=1)
    assert [row["batches"] for row in rows if row["client"] is not None] == [-(-size // 4) for size in SIZES]


def test_targets_are_reached_in_either_direction() -> None:
    rows = [{"round": number, "value": value} for number, value in enumerate([0.5, 0.2, 0.7, 0.6], start=1)]
    assert (first_reaching(rows, 0.6) or {})["round"] == 3
    assert (first_reaching(rows, 0.2, higher_is_better=False) or {})["round"] == 2
    assert first_reaching(rows, 0.8) is None


def test_findings_name_round_bytes_and_updates(finished_run: RunFolder) -> None:
    recorded = RunArchive(finished_run.path).rows
    target = max(row["test_accuracy"] for row in recorded)
    first = next(row for row in recorded if row["test_accuracy"] == target)
    rows = [{"run": 0, "round": row["round"], "value": row["test_accuracy"], "bytes": row["bytes"]} for row in recorded]
    (line,) = build("curve", target=target).findings(rows, [finished_run])
    updates = sum(3 if number <= 2 else 5 for number in range(1, first["round"] + 1))
    assert f"in round {first['round']}, after {first['bytes'] / 1e6:,.1f} MB and {updates} client updates" in line
    (missed,) = build("curve", target=1.1).findings(rows, [finished_run])
    assert missed.endswith("is not reached")
    assert switch_of(finished_run) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has 6 evaluated rounds, fewer than 41; use window=5"),
        ({"window": 4}, "window: must be odd"),
        ({"window": 3, "order": 1, "target": 50}, "target: test_accuracy is a share .* for 50 %, give 0.5"),
        ({"window": 3, "order": 3}, r"order: must be below window \(got 3 and 3\); use order=2"),
        ({"order": 5}, "has 6 evaluated rounds, fewer than 41; use window=5 order=4"),
        ({"window": 3, "order": 1, "zoom": 1}, "has 1 evaluated round in its last 1"),
        ({"window": 3, "order": 1, "zoom": 6}, "zoom: must be below the 6 rounds of"),
    ],
)
def test_windows_zooms_and_targets_that_do_not_fit_are_rejected(
    finished_run: RunFolder, options: dict[str, int], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        build("curve", **options).units([finished_run])


def test_a_dotted_line_marks_the_switch_to_the_last_phase(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("curve", finished_run, out=tmp_path, window=3, order=1)
    axes = build("curve", window=3, order=1).draw(rows, [finished_run]).axes[0]
    dotted = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert dotted == [2.5]  # two rounds of the relay come before


@pytest.mark.parametrize("name", ["curve", "gains", "convex"])
def test_runs_that_are_ranked_by_different_metrics_are_not_drawn_on_one_axis(
    finished_run: RunFolder, by_loss: RunFolder, name: str
) -> None:
    said = f"'{name}': the runs are ranked by different metrics, 'test_accuracy' and 'test_loss'; analyse them apart"
    with pytest.raises(ScenarioError) as refused:
        rayfl.analyse(name, [finished_run.path, by_loss.path], backend="inline", quiet=True)
    assert str(refused.value) == said


@pytest.fixture(scope="module")
def by_loss(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that is ranked by its loss."""
    short = [scene.PLAIN | {"rounds": 1}]
    return finished(tmp_path_factory.mktemp("by_loss"), phases=short, evaluation={"headline": "loss"})


def test_a_picture_names_the_data_of_all_its_runs() -> None:
    data = [DataNote("cifar10", "files"), DataNote("cifar10", "files"), DataNote("mnist", "generated")]
    runs: Any = [SimpleNamespace(place=None, data=one) for one in data]
    shown = new_figure("Learning curves", runs, 11, 7).get_supxlabel()
    assert shown == "Data: cifar10 (real files), mnist (generated, no real data)"


@pytest.fixture(scope="module")
def grid_runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Relays of one and two rounds out of five, with two seeds each."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "small.toml").write_text(tomli_w.dumps(scene.tables(phases=[scene.RELAY, scene.PLAIN | {"rounds": 3}])))
    grid = {
        "scenario": str(folder / "small.toml"),
        "seeds": [3, 4],
        "rows": {"relay": {}},
        "columns": {f"{rounds} rounds": {"phases.cyclic.rounds": rounds} for rounds in (1, 2)},
    }
    made = rayfl.grid(grid, backend="inline", out=folder, console=Console(quiet=True)).directory
    places = [(rounds, seed) for rounds in (1, 2) for seed in (3, 4)]
    return [RunFolder.read(made / "relay" / f"{rounds}_rounds" / f"seed_{seed}") for rounds, seed in places]


def test_seeds_of_a_cell_share_a_name(grid_runs: list[RunFolder]) -> None:
    assert names_of(grid_runs, seeds=False) == ["1 rounds", "1 rounds", "2 rounds", "2 rounds"]
    assert names_of(grid_runs[:2], seeds=False) == ["relay / 1 rounds"] * 2


def test_runs_of_one_title_are_named_by_where_their_folders_differ() -> None:
    folders = [Path("/runs") / end for end in ("one/A/seed_0", "two/A/seed_0", "two/B/seed_1")]
    runs: Any = [SimpleNamespace(title="A" if "A" in path.parts else "B", path=path, place=None) for path in folders]
    assert names_of(runs) == ["A (one/A/seed_0)", "A (two/A/seed_0)", "B"]


def test_seeds_of_a_cell_are_averaged_and_the_last_rounds_enlarged(grid_runs: list[RunFolder], tmp_path: Path) -> None:
    rows = analysed("curve", *grid_runs, out=tmp_path, window=3, order=1, zoom=2)
    whole, zoomed, _, switch = build("curve", window=3, order=1, zoom=2).draw(rows, grid_runs).axes
    drawn = {line.get_label(): line for line in whole.lines if not line.get_label().startswith("_")}
    assert [*drawn] == ["1 rounds", "2 rounds"]
    for place, (line, last) in enumerate(zip(drawn.values(), zoomed.lines, strict=True)):
        smoothed = [
            [row["smoothed"] for row in rows if row["run"] == run and row["round"]]
            for run in (2 * place, 2 * place + 1)
        ]
        np.testing.assert_allclose(line.get_ydata(), np.mean(smoothed, axis=0))
        rounds = 4 + place
        assert last.get_xdata().tolist() == [rounds - 1, rounds]
        np.testing.assert_allclose(last.get_ydata(), line.get_ydata()[-2:])
    points = switch.lines[0]
    assert points.get_xdata().tolist() == [1, 1, 2, 2]
    assert points.get_ydata().tolist() == [RunArchive(run.path).rows[-1]["test_accuracy"] for run in grid_runs]
