"""Tables of figures against values computed by hand, and their pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from rayfl.engine.plan.headline import Headline, Unit, unit_of
from rayfl.errors import ScenarioError
from rayfl.runs.archive import GridPlace
from rayfl.runs.figures.style import write
from rayfl.studies.grid.cells import Cell
from rayfl.studies.grid.execution import GridResult
from rayfl.studies.grid.pictures import draw, draw_histogram, panels
from rayfl.studies.grid.results import FailedRun, FinishedRun
from rayfl.studies.grid.schema import Grid
from rayfl.studies.grid.table import GridTable
from tests.runs.evaluations import ACCURACY

MEAN, VARIANCE = "client_test_accuracy_mean", "client_test_accuracy_variance"
GRID: dict[str, Any] = {
    "title": "Table 1a",
    "scenario": "any",
    "seeds": [0, 1],
    "tasks": 3,
    "figures": [MEAN, VARIANCE],
    "reference": "CoPreFL",
    "rows": {"FedAvg": {}, "CoPreFL": {}},
    "columns": {"CIFAR-100": {}},
    "published": {MEAN: {"FedAvg": {"CIFAR-100": [78.96, 2.98]}}, VARIANCE: {"CoPreFL": {"CIFAR-100": 34.69}}},
}
SHARES = {"FedAvg": [(0.70, 0.80), (0.60, 0.60), (0.90, 0.94)], "CoPreFL": [(0.80, 0.80), (0.70, 0.66), (0.95, 0.95)]}
"""The clients' mean accuracy, by row, then task, then seed."""
PLACE = GridPlace("grid", "FedAvg", "CIFAR-100", 0, 0)


def left_by_a_run(
    folder: Path, mean: float, variance: float, clients: Sequence[float | None], source: str = "files"
) -> Path:
    """Records of a run that was evaluated twice, with the figures in the later line."""
    folder.mkdir(parents=True)
    lines = [
        {"phase": "p", "round": number, "test_accuracy": 0.5, MEAN: mean * number / 2, VARIANCE: variance * number / 2}
        | {"test_loss": 1.0, "seconds": 1.0}
        for number in (1, 2)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[::-1]))
    data = {"name": "cifar100", "source": source, "description": "CIFAR-100", "files": [], "digest": "d"}
    (folder / "environment.json").write_text(json.dumps({"place": None, "data": data, "headline": asdict(ACCURACY)}))
    rows: list[dict[str, Any]] = [
        {"round": number, "client": client, "set": of, "samples": 5, "accuracy": score and score * number / 2}
        for number in (1, 2)
        for of in ("client_test", "validation")
        for client, score in enumerate(clients)
    ]
    rows += [{"round": 2, "client": 0, "set": None, "samples": None, "accuracy": None}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clients.parquet")
    return folder


def runs_of(tmp_path: Path, row: str, source: str = "files") -> dict[Path, FinishedRun]:
    found = {}
    for task, by_seed in enumerate(SHARES[row]):
        for seed, mean in enumerate(by_seed):
            folder = tmp_path / row / f"{seed}" / f"{task}"
            left_by_a_run(folder, mean, 0.004, [mean - 0.1, mean], source)
            found[folder] = FinishedRun.read(GridPlace("grid", row, "CIFAR-100", seed, task), folder, GRID["figures"])
    return found


@pytest.fixture
def runs(tmp_path: Path) -> list[FinishedRun]:
    return [run for row in SHARES for run in runs_of(tmp_path, row).values()]


def test_a_grid_without_figures_has_no_table_of_them() -> None:
    grid = Grid.model_validate({"scenario": "any", "rows": {"FedAvg": {}}, "columns": {"a": {}}, "metrics": ["last"]})
    assert "of the last round" in GridTable(grid, []).markdown()
    assert "a: last evaluated round" not in GridTable(grid, []).markdown()


def test_figures_are_those_of_the_last_evaluated_round_in_percent_and_percent_squared(tmp_path: Path) -> None:
    folder = left_by_a_run(tmp_path / "run", 0.75, 0.0035, [])
    read = FinishedRun.read(PLACE, folder, [MEAN, VARIANCE, "test_loss"])
    assert read.figures == {MEAN: pytest.approx(75), VARIANCE: pytest.approx(35), "test_loss": 1.0}


@pytest.mark.parametrize(
    ("column", "headline", "unit"),
    [
        ("client_test_accuracy_lowest_10", ACCURACY, Unit(100, "%")),
        ("client_test_accuracy_variance_corrected", ACCURACY, Unit(1e4, "%²")),
        ("client_test_accuracy_pooled_variance", ACCURACY, Unit(1e4, "%²")),
        ("client_test_loss_variance", ACCURACY, Unit(1, "")),
        ("client_test_rmse_variance", Headline("rmse", False, False), Unit(1, "")),
    ],
)
def test_the_unit_follows_from_the_columns_name_and_the_headline(column: str, headline: Headline, unit: Unit) -> None:
    assert unit_of(column, headline) == unit


def test_a_missing_figure_is_named_with_the_file_and_the_nearest(tmp_path: Path) -> None:
    folder = left_by_a_run(tmp_path / "run", 0.75, 0.0035, [])
    with pytest.raises(ScenarioError) as caught:
        FinishedRun.read(PLACE, folder, ["client_test_accuracy_maen"])
    assert str(caught.value).startswith(
        f"figures: no column 'client_test_accuracy_maen' in '{folder}/metrics.jsonl'; did you mean '{MEAN}'"
    )


def test_rows_are_starting_points_and_columns_figures_over_tasks(runs: list[FinishedRun]) -> None:
    lines = GridTable(Grid.model_validate(GRID), runs).markdown().splitlines()
    assert lines[2] == (
        "CIFAR-100: last evaluated round; mean ± standard deviation over 3 tasks, each averaged over 2 seeds; "
        "published figures in brackets."
    )
    assert lines[4] == "|  | client test accuracy mean, % | client test accuracy variance, %² |"
    # FedAvg by task: 75, 60, 92; the mean is 75.667, the squares sum to 0.444 + 245.444 + 266.778 = 512.667
    assert lines[6] == "| FedAvg | 75.67 ± 16.01 (78.96 ± 2.98) | 40.00 ± 0.00 |"
    # CoPreFL by task: 80, 68, 95; the mean is 81, the squares sum to 1 + 169 + 196 = 366
    assert lines[7] == "| CoPreFL | 81.00 ± 13.53 | 40.00 ± 0.00 (34.69) |"


def test_differences_to_the_reference_have_an_interval_over_tasks(runs: list[FinishedRun]) -> None:
    lines = GridTable(Grid.model_validate(GRID), runs).markdown().splitlines()
    # by task: -5, -8, -3; the mean is -5.333, the squares sum to 12.667, and 4.303 sqrt(12.667 / 2 / 3) = 6.252
    assert lines[13] == "| FedAvg | −5.33 [−11.58, +0.92] | +0.00 [+0.00, +0.00] |"
    assert lines[9] == (
        "CIFAR-100: row minus CoPreFL; mean difference on the same task, averaged over 2 seeds, and in brackets its "
        "95 % t-interval over tasks, which does not cover the choice of the seeds."
    )


def test_runs_that_are_missing_are_counted(runs: list[FinishedRun]) -> None:
    first = ((0, 0), (0, 1), (1, 0))
    some = [run for run in runs if run.place.row == "CoPreFL" or (run.place.task, run.place.seed) in first]
    failed = FailedRun(GridPlace("grid", "FedAvg", "CIFAR-100", 1, 1), "diverged", "the loss is nan")
    text = GridTable(Grid.model_validate(GRID), [*some, failed]).markdown()
    # 75 and 60; differences -5 and -10, 12.706 * sqrt(12.5 / 2) = 31.766
    assert "| FedAvg | 67.50 ± 10.61, 3 of 6 runs, 1 diverged (78.96 ± 2.98) |" in text
    assert "| FedAvg | −7.50 [−39.27, +24.27], 3 of 6 runs |" in text
    assert "| FedAvg | CIFAR-100 | 1 | 1 | diverged | the loss is nan |" in text
    none = GridTable(Grid.model_validate(GRID), []).markdown()
    assert "| FedAvg | not run (78.96 ± 2.98) | not run |" in none
    assert "| FedAvg | not run | not run |" in none


def test_without_tasks_deviations_and_intervals_are_over_seeds(runs: list[FinishedRun]) -> None:
    grid = Grid.model_validate({name: value for name, value in GRID.items() if name != "tasks"})
    of_one_task = [replace(run, place=run.place._replace(task=None)) for run in runs if run.place.task == 0]
    text = GridTable(grid, of_one_task).markdown()
    assert "CIFAR-100: last evaluated round; mean ± standard deviation over 2 seeds; published" in text
    assert "| FedAvg | 75.00 ± 7.07 (78.96 ± 2.98) |" in text
    assert "mean difference between runs with the same seed, and in brackets its 95 % t-interval over seeds." in text


def test_the_parquet_file_has_tasks_figures_and_what_was_published(tmp_path: Path, runs: list[FinishedRun]) -> None:
    GridTable(Grid.model_validate(GRID), runs).write(tmp_path)
    rows = pq.read_table(tmp_path / "table.parquet").to_pylist()
    assert [(row["seed"], row["task"]) for row in rows[:3]] == [(0, 0), (1, 0), (0, 1)]
    assert rows[0][MEAN] == pytest.approx(70)
    assert rows[0][VARIANCE] == pytest.approx(40)
    assert (rows[0][f"published_{MEAN}"], rows[0][f"published_{VARIANCE}"]) == (78.96, None)
    assert rows[-1][f"published_{VARIANCE}"] == 34.69


def test_a_figure_that_every_run_has_a_column_for_is_in_the_parquet_file_once(tmp_path: Path) -> None:
    grid = Grid.model_validate(GRID | {"figures": ["test_loss", MEAN, "seconds"], "published": {}})
    folder = left_by_a_run(tmp_path / "run", 0.75, 0.0035, [])
    run = FinishedRun.read(PLACE, folder, grid.figures)
    table = GridTable(grid, [run])
    table.write(tmp_path)
    (row,) = GridResult(grid, tmp_path, [], table).table.to_pylist()
    assert (row["test_loss"], row[MEAN], row["seconds"]) == (1.0, pytest.approx(75), 1.0)
    assert row["published_test_loss"] is None


def test_a_test_loss_that_is_not_finite_is_null_in_the_parquet_file_also_as_a_figure(tmp_path: Path) -> None:
    grid = Grid.model_validate(GRID | {"figures": ["test_loss"], "published": {}})
    folder = left_by_a_run(tmp_path / "run", 0.75, 0.0035, [])
    records = folder / "metrics.jsonl"
    records.write_text(records.read_text().replace('"test_loss": 1.0', '"test_loss": null'))
    run = FinishedRun.read(PLACE, folder, grid.figures)
    GridTable(grid, [run]).write(tmp_path)
    assert pq.read_table(tmp_path / "table.parquet")["test_loss"].to_pylist() == [None]


def drawn(tmp_path: Path, source: str, with_clients: bool = True) -> str:
    """Draws the pictures of a whole grid; returns the printed text."""
    found = {folder: run for row in SHARES for folder, run in runs_of(tmp_path, row, source).items()}
    if not with_clients:
        for folder in found:
            (folder / "clients.parquet").unlink()
    cells = {_cell(folder, run): run for folder, run in found.items()}
    grid = Grid.model_validate(GRID | {"title": "Costs $1 or $2"})
    console = Console(file=StringIO(), width=200)
    draw(grid, GridTable(grid, list(cells.values())), cells, tmp_path, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _cell(folder: Path, run: FinishedRun) -> Cell:
    from rayfl.config.loader import load_scenario

    return Cell(run.place, load_scenario("femnist_fedavg"), folder, folder.parent / "starts")


@pytest.mark.parametrize("source", ["files", "generated"])
def test_tables_and_clients_are_drawn_and_say_that_data_was_generated(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = []

    def remember(figure: Figure, path: Path) -> None:
        figures.append(figure)
        write(figure, path)

    monkeypatch.setattr("rayfl.studies.grid.pictures.write", remember)
    assert drawn(tmp_path, source) == ""
    _, _, clients, again = figures  # each as PNG and as PDF
    assert clients is again
    assert ("generated" in clients.get_supxlabel()) == (source == "generated")
    for name in ("table", "clients"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert min(picture.size) > 400
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_many_rows_are_drawn_in_separate_panels_beside_the_reference(tmp_path: Path) -> None:
    scores = {f"row {number}": [0.1 * number, 0.5, 1.0] for number in range(7)}
    found = list(panels("C", scores, "row 2"))
    assert [title for title, _ in found] == [f"C: row {number}" for number in (0, 1, 3, 4, 5, 6)]
    assert all(by_row.keys() == {title.removeprefix("C: "), "row 2"} for title, by_row in found)
    assert [list(by_row) for _, by_row in panels("C", scores, None)] == [[row] for row in scores]
    few = dict(list(scores.items())[:5])
    assert list(panels("C", few, "row 2")) == [("C", few)]
    draw_histogram({"C": scores}, ACCURACY, "Seven rows", False, tmp_path / "clients", "row 2")
    with Image.open(tmp_path / "clients.png") as picture:
        assert picture.width > 1.5 * picture.height


def test_a_grid_whose_runs_kept_no_clients_has_its_tables_alone(tmp_path: Path) -> None:
    assert drawn(tmp_path, "files", with_clients=False) == ""
    assert (tmp_path / "table.png").exists()
    assert not (tmp_path / "clients.png").exists()
