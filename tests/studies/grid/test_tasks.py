"""A grid with tasks and starting points, from its file to its tables, on data made in the test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tomli_w

from rayfl.cli.grid import main
from rayfl.config.loader import load_scenario
from rayfl.errors import ScenarioError
from rayfl.runs.archive import GridPlace
from rayfl.runs.resolution import resolve
from rayfl.runs.start_chain import starts_of
from rayfl.studies.grid.cell_runs import planned
from rayfl.studies.grid.cells import cells_of
from rayfl.studies.grid.schema import load_grid

LOCAL = {"lr": 0.1, "batch_size": 8}
BEFORE: dict[str, Any] = {
    "data": {"name": "tests.user_code:vectors", "clients": 3},
    "model": "tests.user_code:Linear",
    "phases": [{"name": "pretraining", "rounds": 2, "cohort": 3, "local": LOCAL}],
    "quick": {"phases.pretraining.rounds": 1},
}
AFTER: dict[str, Any] = {
    "data": {"name": "tests.user_code:vectors", "clients": 4, "test_share": 0.25},
    "model": "tests.user_code:Linear",
    "phases": [{"name": "federated", "rounds": 2, "cohort": 2, "local": LOCAL}],
    "evaluation": {"per_client": True},
    "quick": {"phases.federated.rounds": 1},
}
FASTER = {"phases.pretraining.local.lr": 0.5}
GRID: dict[str, Any] = {
    "scenario": "after",
    "seeds": [0, 1],
    "tasks": 2,
    "figures": ["client_test_accuracy", "train_loss"],
    "reference": "Faster",
    "rows": {
        "Random": {},
        "FedAvg": {"start": {"scenario": "before"}},
        "Faster": {"start": {"scenario": "before", "overrides": FASTER}},
    },
    "columns": {"points": {}},
    "published": {"client_test_accuracy": {"Random": {"points": [78.96, 2.98]}, "FedAvg": {"points": 80.0}}},
}


def written(folder: Path, **changes: Any) -> Path:
    """The file of the grid, next to those of its scenarios."""
    (folder / "scenarios").mkdir(exist_ok=True)
    path = folder / "scenarios" / "suite.grid.toml"
    for file, tables in (("before.toml", BEFORE), ("after.toml", AFTER), (path.name, GRID | changes)):
        (path.parent / file).write_text(tomli_w.dumps(tables))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rayfl.studies.grid.pictures.draw", lambda *_: None)
    written(tmp_path)
    return tmp_path


@dataclass
class Finished:
    """A grid of which the runs of task 0 came first, and when their starts were finished."""

    folder: Path
    starts: dict[Path, int]


@pytest.fixture(scope="module")
def run_in_two_parts(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rayfl.studies.grid.pictures.draw", lambda *_: None)
        folder = tmp_path_factory.mktemp("grid")
        patch.chdir(folder)
        written(folder)
        assert run("--task", "0") == 0
        starts = times_of_starts(folder)
        assert run() == 0
    return Finished(folder, starts)


@pytest.fixture
def finished(run_in_two_parts: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    monkeypatch.chdir(run_in_two_parts.folder)
    monkeypatch.setattr("rayfl.studies.grid.pictures.draw", lambda *arguments: arguments[3].joinpath("drawn").touch())
    return run_in_two_parts


def run(*arguments: str) -> int:
    return main(["suite", "--backend", "inline", *arguments])


def times_of_starts(folder: Path) -> dict[Path, int]:
    starts = [path for path in (folder / "runs" / "suite" / "starts").iterdir() if path.is_dir()]
    return {path: (path / "status.json").stat().st_mtime_ns for path in starts}


def times_run_first(folder: Path) -> dict[str, int]:
    """The number of starting scenarios that each cell ran."""
    runs = folder / "runs" / "suite"
    logs = {str(log.parent.relative_to(runs)): log.read_text() for log in runs.rglob("run.log")}
    return {cell: text.count("runs first") for cell, text in logs.items() if "runs first" in text}


def test_a_grid_that_lost_its_tasks_keeps_their_runs(finished: Finished) -> None:
    without = {key: value for key, value in GRID.items() if key != "tasks"} | {"name": "suite"}
    cell, *_ = cells_of(load_grid(without), finished.folder / "runs")
    with pytest.raises(ScenarioError, match="has runs of tasks, and the grid has no tasks now; choose another folder"):
        cell.finished()


def test_a_grid_with_starts_and_tasks_is_run_from_end_to_end(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "12, with 2 tasks and 2 seeds per cell; 12 finished already" in said.out
    runs = finished.folder / "runs" / "suite"
    assert {str(marker.parent.relative_to(runs)) for marker in runs.rglob("finished.json")} == {
        f"{row}/points/seed_{seed}/task_{task}"
        for row in ("Random", "FedAvg", "Faster")
        for seed in (0, 1)
        for task in (0, 1)
    }

    # two starts with two seeds each, run by the first cell of each
    assert len(finished.starts) == 4
    assert times_run_first(finished.folder) == {
        f"{row}/points/seed_{seed}/task_0": 1 for row in ("FedAvg", "Faster") for seed in (0, 1)
    }

    # the same tasks for all, another start for every seed
    environments = {
        (row, seed, task): json.loads((runs / f"{row}/points/seed_{seed}/task_{task}/environment.json").read_text())
        for row in ("FedAvg", "Faster")
        for seed in (0, 1)
        for task in (0, 1)
    }
    starts = {key: environment["start"]["sha256"] for key, environment in environments.items()}
    assert len(set(starts.values())) == 4
    assert all(starts[row, seed, 0] == starts[row, seed, 1] for row, seed, _ in starts)

    lines = (runs / "table.md").read_text().splitlines()
    header = next(line for line in lines if "client test accuracy, %" in line)
    assert header == "|  | client test accuracy, % | train loss |"
    table = pq.read_table(runs / "table.parquet").to_pylist()
    assert len(table) == 12
    of_random = {(row["seed"], row["task"]): row["client_test_accuracy"] for row in table if row["row"] == "Random"}
    means = [(of_random[0, task] + of_random[1, task]) / 2 for task in (0, 1)]
    deviation = abs(means[0] - means[1]) / 2**0.5
    entry = f"| Random | {sum(means) / 2:.2f} ± {deviation:.2f} (78.96 ± 2.98) |"
    assert any(line.startswith(entry) for line in lines)
    assert any(line.startswith("points: row minus Faster; mean difference on the same task") for line in lines)
    assert (runs / "drawn").exists()


def test_an_interrupted_grid_goes_on_with_the_starts_that_are_finished(finished: Finished) -> None:
    assert times_of_starts(finished.folder) == finished.starts


def test_cells_whose_start_was_changed_since_are_not_taken_for_finished(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    before = finished.folder / "scenarios" / "before.toml"
    only = ["--task", "0", "--seed", "0"]
    try:
        before.write_text(tomli_w.dumps(BEFORE | {"title": "The same, called otherwise"}))
        assert run(*only) == 0
        (phase,) = BEFORE["phases"]
        before.write_text(tomli_w.dumps(BEFORE | {"phases": [phase | {"rounds": 5}]}))
        assert run(*only) == 1
    finally:
        before.write_text(tomli_w.dumps(BEFORE))
    said = capsys.readouterr().err
    assert "FedAvg / points / seed 0 / task 0: '" in said
    assert f"has a run that started from '{before}' before that scenario was changed; choose another folder" in said


def test_one_task_and_one_seed_can_be_chosen(folder: Path) -> None:
    assert run("--task", "1", "--seed", "1", "--only", "Random/*") == 0
    (found,) = (folder / "runs").rglob("finished.json")
    assert found.parent == folder / "runs" / "suite" / "Random" / "points" / "seed_1" / "task_1"


def test_a_task_that_is_not_there_is_rejected(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--task", "2") == 1
    assert capsys.readouterr().err == "error: this grid has no task 2; its tasks are 0 to 1\n"


def test_the_first_cell_of_every_start_comes_first_and_counts_its_client_updates(folder: Path) -> None:
    cells = cells_of(load_grid("suite"), folder)
    work = planned(cells)
    assert [(cell.place, updates) for cell, updates in list(work.items())[:4]] == [
        (GridPlace("suite", row, "points", seed, 0), 2 * 3 + 2 * 2) for row in ("FedAvg", "Faster") for seed in (0, 1)
    ]
    assert set(list(work.values())[4:]) == {2 * 2}
    assert set(work) == set(cells)


def test_the_longest_start_comes_first_and_finished_ones_are_not_counted(folder: Path) -> None:
    rows = GRID["rows"] | {
        "Longer": {"start": {"scenario": "before", "overrides": {"phases.pretraining.rounds": 9}}},
    }
    cells = cells_of(load_grid(written(folder, rows=rows, seeds=[0])), folder)
    first, *_ = work = planned(cells)
    assert (first.row, work[first]) == ("Longer", 9 * 3 + 2 * 2)
    done = [cell for cell in cells if cell.row == "Longer" and cell.place.task == 0]
    later = planned([cell for cell in cells if cell not in done], done)
    assert [cell.row for cell in later][:2] == ["FedAvg", "Faster"]
    assert {updates for cell, updates in later.items() if cell.row == "Longer"} == {2 * 2}


def test_a_start_that_starts_from_another_counts_both_once_for_every_seed(folder: Path) -> None:
    middle = BEFORE | {"start": {"scenario": "before"}}
    (folder / "scenarios" / "middle.toml").write_text(tomli_w.dumps(middle))
    rows = {"Twice": {"start": {"scenario": "middle"}}}
    cells = cells_of(load_grid(written(folder, rows=rows, reference="Twice", published={})), folder)
    assert list(planned(cells).values()) == [6 + 6 + 4, 6 + 6 + 4, 4, 4]


def test_a_wrong_name_in_a_start_is_found_before_anything_runs(folder: Path) -> None:
    wrong = {"start": {"scenario": "before", "overrides": {"phases.pretraining.algorithm": "fedagv"}}}
    grid = load_grid(written(folder, rows=GRID["rows"] | {"Wrong": wrong}))
    with pytest.raises(ScenarioError) as caught:
        cells_of(grid, folder)
    assert str(caught.value).startswith(
        "grid 'suite', Wrong / points: start.scenario 'before': unknown algorithm 'fedagv'; did you mean 'fedavg'"
    )


def test_a_start_whose_model_does_not_fit_is_found_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {"start": {"scenario": "before", "overrides": {"model": {"name": "mlp", "hidden": [3]}}}}
    written(folder, rows=GRID["rows"] | {"Wrong": wrong})
    assert run() == 1
    said = capsys.readouterr().err
    before = folder / "scenarios" / "before.toml"
    assert said.startswith(f"error: Wrong / points / seed 0 / task 0: start.scenario '{before}': ")
    assert not list((folder / "runs").rglob("status.json"))


def test_a_figure_that_no_run_will_have_is_named_before_the_start_of_the_first_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, figures=["client_test_acuracy"], published={})
    assert run() == 1
    said = capsys.readouterr().err
    where = "Random / points / seed 0 / task 0"
    assert said.startswith(f"error: {where}: figures: no column of metrics.jsonl is called 'client_test_acuracy'; ")
    assert "did you mean 'client_test_accuracy'" in said
    assert not list((folder / "runs").rglob("finished.json"))


def test_seeds_reach_the_start_of_a_start(folder: Path) -> None:
    """Each seed of the grid has its own pre-training, from the first scenario of the chain on."""
    (folder / "scenarios" / "first.toml").write_text(tomli_w.dumps(BEFORE))
    written(folder, rows={"Chain": {"start": {"scenario": "before"}}}, reference="Chain", tasks=1, published={})
    (folder / "scenarios" / "before.toml").write_text(tomli_w.dumps({**BEFORE, "start": {"scenario": "first"}}))
    for cell in cells_of(load_grid("suite"), folder):
        seeds = [(link.scenario.name, link.scenario.seed) for link in starts_of(cell.scenario.start)]
        assert seeds == [("before", cell.place.seed), ("first", cell.place.seed)]


def test_quick_runs_the_starts_in_their_quick_form_too(folder: Path) -> None:
    cells = cells_of(load_grid("suite"), folder, quick=True)
    assert next(iter(planned(cells).values())) == 1 * 3 + 1 * 2


@pytest.mark.parametrize(
    ("first", "own", "expected"),
    [
        (BEFORE, {}, 1),
        (BEFORE, {"quick": False}, 2),
        ({key: value for key, value in BEFORE.items() if key != "quick"}, {}, 2),
    ],
    ids=["it has a quick form", "it says that it is not quick", "it has no quick form"],
)
def test_quick_reaches_the_start_of_a_start(
    first: dict[str, Any], own: dict[str, Any], expected: int, folder: Path
) -> None:
    (folder / "scenarios" / "first.toml").write_text(tomli_w.dumps(first))
    (folder / "scenarios" / "before.toml").write_text(tomli_w.dumps({**BEFORE, "start": {"scenario": "first", **own}}))
    (cell, *_) = [cell for cell in cells_of(load_grid("suite"), folder, quick=True) if cell.row == "FedAvg"]
    alone = load_scenario({**AFTER, "start": {"scenario": "before", "quick": True}})
    for scenario in (cell.scenario, alone):
        assert [link.scenario.phases[0].rounds for link in starts_of(scenario.start)] == [1, expected]


def test_a_cell_of_a_grid_can_be_run_again_from_its_own_scenario_file(folder: Path) -> None:
    *_, cell = cells_of(load_grid("suite"), folder, ["start.overrides.data.clients=5"])
    (folder / "again.toml").write_text(cell.scenario.to_toml())
    assert resolve(load_scenario(folder / "again.toml")) == cell.scenario
