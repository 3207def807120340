"""The cells of a grid: finished ones are kept, unfinished ones run again, failed ones do not stop the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from rayfl.backends.ray.tasks import Returned
from rayfl.errors import ResourceError, ScenarioError
from rayfl.runs.options import RunOptions
from rayfl.runs.status import read_status
from rayfl.studies.grid.cell_runs import BEGUN, LOG, Outcome, alone_in, client_updates, planned, run_cell, run_cells
from rayfl.studies.grid.cells import MARKER, Cell, cells_of
from rayfl.studies.grid.schema import Grid, load_grid

SCENARIO = {
    "name": "tiny",
    "data": {"name": "tests.user_code:vectors", "clients": 4},
    "model": "tests.user_code:Linear",
    "phases": [
        {"name": "cyclic", "schedule": "relay", "rounds": 1, "cohort": 2},
        {"name": "federated", "until": 3, "cohort": 0.5, "local": {"lr": 0.5, "batch_size": 8}},
    ],
}
GRID: dict[str, Any] = {
    "name": "small",
    "scenario": "tiny.toml",
    "seeds": [0, 1],
    "rows": {"FedAvg": {"phases.cyclic.rounds": 0}, "Cyclic": {}},
    "columns": {"2": {"phases.federated.cohort": 2}, "4": {"phases.federated.cohort": 4}},
}
NO_DATA = Path("no-data-here")


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    return write_grid(tmp_path)


def write_grid(folder: Path, **changes: Any) -> Grid:
    (folder / "tiny.toml").write_text(tomli_w.dumps(SCENARIO))
    (folder / "small.grid.toml").write_text(tomli_w.dumps(GRID | changes))
    return load_grid(folder / "small.grid.toml")


def run_inline(cells: list[Cell], out: Path) -> list[Outcome]:
    events = list(run_cells(cells, RunOptions(backend="inline", data_dir=NO_DATA), out))
    return [event for event in events if isinstance(event, Outcome)]


def accuracies(cell: Cell) -> list[float]:
    lines = (cell.folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["test_accuracy"] for line in lines]


def test_every_cell_has_a_folder_that_its_labels_name(grid: Grid, tmp_path: Path) -> None:
    cells = cells_of(grid, tmp_path / "runs")
    assert len({cell.folder for cell in cells}) == 8
    assert cells[0].folder == tmp_path / "runs" / "small" / "FedAvg" / "2" / "seed_0"
    assert str(cells[0]) == "FedAvg / 2 / seed 0"
    assert cells[0].scenario.title == "small: FedAvg / 2 / seed 0"


def test_a_cell_leaves_a_runs_records_its_log_and_a_marker(grid: Grid, tmp_path: Path) -> None:
    cell = cells_of(grid, tmp_path)[-1]
    assert not cell.finished()
    assert run_cell(cell, NO_DATA) is None
    assert {file.name for file in cell.folder.iterdir()} == {
        *("scenario.toml", "metrics.jsonl", "model.safetensors", "environment.json", "split.json"),
        *("status.json", LOG, BEGUN, MARKER, "models"),
    }
    assert len(accuracies(cell)) == 3
    assert "records: " in (cell.folder / LOG).read_text()
    assert cell.finished()


def test_an_unfinished_run_is_begun_again_in_an_empty_folder(grid: Grid, tmp_path: Path) -> None:
    cell, *_ = cells_of(grid, tmp_path)
    run_cell(cell, NO_DATA)
    expected = accuracies(cell)
    (cell.folder / MARKER).unlink()
    (cell.folder / "metrics.jsonl").write_text('{"round": 1, "test_acc')
    (cell.folder / "stray").touch()
    assert not cell.finished()
    assert run_inline([cell], tmp_path) == [Outcome(cell, None)]
    assert accuracies(cell) == expected
    assert not (cell.folder / "stray").exists()
    assert cell.finished()


def test_files_of_an_unfinished_run_stay_until_it_begins_again(grid: Grid, tmp_path: Path) -> None:
    first, second, *_ = cells_of(grid, tmp_path)
    second.folder.mkdir(parents=True)
    (second.folder / LOG).write_text("error: why it failed")
    events = run_cells([first, second], RunOptions(backend="inline", data_dir=NO_DATA), tmp_path)
    assert [next(events), next(events)] == [1, Outcome(first, None)]
    assert (second.folder / LOG).read_text() == "error: why it failed"
    assert list(events) == [1, Outcome(second, None)]
    assert second.finished()


def test_a_grids_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path),
        pytest.raises(ResourceError, match=f"another process is running this grid in '{tmp_path}': wait for it"),
        alone_in(tmp_path),
    ):
        pass
    with alone_in(tmp_path):
        pass


def test_runs_with_most_client_updates_come_first(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.studies.grid.cell_runs.run_cell", lambda *_: None)
    cells = cells_of(grid, tmp_path)
    work = planned(cells)
    assert [work[cell] for cell in cells if cell.place.seed == 0] == [3 * 2, 3 * 4, 2 + 2 * 2, 2 + 2 * 4]
    assert list(work.values()) == [12, 12, 10, 10, 6, 6, 6, 6]
    events = list(run_cells(list(work), RunOptions(backend="inline", data_dir=NO_DATA), tmp_path))
    assert events[::2] == [1] * 8
    assert [event.cell for event in events if isinstance(event, Outcome)] == list(work)


@pytest.mark.parametrize(
    ("cohort", "expected"),
    [
        (3, 6.0),
        (0.5, 4.0),
        ({"bernoulli": 0.25}, 2.0),
        ({"explicit": [[0], [1, 2]]}, 3.0),
        ({"by_size": 3}, 6.0),
    ],
)
def test_client_updates_are_counted_for_every_kind_of_cohort(cohort: Any, expected: float, tmp_path: Path) -> None:
    row = {"phases.cyclic.rounds": 0, "phases.federated.until": 2, "phases.federated.cohort": cohort}
    cell, *_ = cells_of(write_grid(tmp_path, rows={"a": row}, columns={"only": {}}), tmp_path)
    assert client_updates(cell.scenario) == expected


def test_a_failed_run_is_told_and_logged_and_the_others_go_on(tmp_path: Path) -> None:
    grid = write_grid(
        tmp_path,
        rows={
            "raises": {"model": "tests.user_code:RaisesInTraining"},
            "wrong": {"model": "tests.user_code:OneLogitShort"},
            "bug": {"data.name": "tests.studies.grid.test_cells:not_data"},
            "good": {},
        },
        columns={"only": {}},
        seeds=[0],
    )
    outcomes = {outcome.cell.row: outcome for outcome in run_inline(cells_of(grid, tmp_path), tmp_path)}
    assert outcomes["good"].error is None
    assert outcomes["good"].cell.finished()
    errors = {row: outcome.error or "" for row, outcome in outcomes.items()}
    assert errors["raises"].startswith("client ")
    assert "the sensor is unplugged" in (outcomes["raises"].cell.folder / LOG).read_text()
    assert "model" in errors["wrong"]
    assert errors["bug"] == (
        "data.options: 'tests.studies.grid.test_cells:not_data' raised ZeroDivisionError: division by zero"
    )
    assert "Traceback" in (outcomes["bug"].cell.folder / LOG).read_text()
    assert not any(outcomes[row].cell.finished() for row in ("raises", "wrong", "bug"))
    for row in ("raises", "wrong", "bug"):
        status = read_status(outcomes[row].cell.folder)
        assert status is not None
        assert (status["status"], status["diverged"], status["reason"]) == ("failed", False, errors[row])


def not_data() -> Mapping[str, Any]:
    return {"rows": 1 / 0}


def test_a_run_of_another_scenario_is_rejected_with_the_difference(grid: Grid, tmp_path: Path) -> None:
    cell, *_ = cells_of(grid, tmp_path)
    run_cell(cell, NO_DATA)
    changed, *_ = cells_of(grid, tmp_path, ["phases.federated.local.lr=0.25", "numerics.fraction_bits=30"])
    with pytest.raises(ScenarioError) as caught:
        changed.finished()
    assert str(caught.value) == (
        f"FedAvg / 2 / seed 0: '{cell.folder}' has a run of another scenario. Differences:\n"
        "  phases.federated.local.lr: 0.5 before, 0.25 now\n"
        "  numerics.fraction_bits: 32 before, 30 now\n"
        "use the same overrides as before, choose another folder with --out, or remove that one to run it again"
    )


def test_title_and_resources_may_change_after_a_run(grid: Grid, tmp_path: Path) -> None:
    cell, *_ = cells_of(grid, tmp_path)
    run_cell(cell, NO_DATA)
    same, *_ = cells_of(grid, tmp_path, ["title=Another", "resources.hosts=7"])
    assert same.finished()


def test_a_run_that_diverged_is_kept_as_such(tmp_path: Path) -> None:
    row: dict[str, Any] = {"phases.cyclic.rounds": 0}
    row |= {"phases.federated.local": {"lr": 3e38, "batch_size": 4, "epochs": 2}}
    row |= {"phases.federated.cohort": {"explicit": [[2]]}}
    cell, *_ = cells_of(write_grid(tmp_path, rows={"a": row}, columns={"b": {}}), tmp_path)
    error = run_cell(cell, NO_DATA)
    status = read_status(cell.folder)
    assert status is not None
    assert (status["status"], status["diverged"], status["reason"]) == ("failed", True, error)


def test_a_worker_that_ray_lost_is_kept_as_a_failure(
    grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, *_ = cells_of(grid, tmp_path)

    def lost(*_: Any) -> Iterator[Returned]:
        cell.folder.mkdir(parents=True)
        (cell.folder / "status.json").write_text('{"status": "running"}')
        yield Returned(0, ResourceError("the worker died:\nout of memory"))

    monkeypatch.setattr("rayfl.backends.ray.tasks.run_tasks", lost)
    outcome, _ = run_cells([cell], RunOptions(backend="ray", data_dir=NO_DATA), tmp_path)
    assert outcome == Outcome(cell, "the worker died: out of memory")
    status = read_status(cell.folder)
    assert status is not None
    assert (status["status"], status["reason"]) == ("failed", "the worker died: out of memory")


def test_a_run_on_another_kind_of_device_is_rejected_with_the_remedy(grid: Grid, tmp_path: Path) -> None:
    cell, *_ = cells_of(grid, tmp_path)
    run_cell(cell, NO_DATA)
    assert json.loads((cell.folder / MARKER).read_text())["device"] == "cpu"
    on_cuda, *_ = cells_of(grid, tmp_path, ["resources.gpus_per_host=0.5"])
    with pytest.raises(ScenarioError) as caught:
        on_cuda.finished()
    assert str(caught.value) == (
        f"FedAvg / 2 / seed 0: '{cell.folder}' has a run on cpu, but cells now run on cuda, which does not give the "
        "same bits; set resources.device and resources.gpus_per_host as before, choose another folder with --out, or "
        "remove that one to run it again"
    )


def test_a_finished_run_stands_though_the_schema_has_new_options_since(grid: Grid, tmp_path: Path) -> None:
    cell, *_ = cells_of(grid, tmp_path)
    run_cell(cell, NO_DATA)
    marker = json.loads((cell.folder / MARKER).read_text())
    marker["digest"] = "of a schema without evaluation.batch_size"
    (cell.folder / MARKER).write_text(json.dumps(marker))
    scenario = (cell.folder / "scenario.toml").read_text()
    (cell.folder / "scenario.toml").write_text(scenario.replace("batch_size = 500\n", ""))
    assert cell.finished()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"model": "lenet"}, "unknown model 'lenet'; did you mean 'lenet5'"),
        ({"data.name": "no_such_module:data"}, "cannot import 'no_such_module:data'"),
        ({"data.partition": "drichlet"}, "unknown partitioner 'drichlet'; did you mean 'dirichlet'"),
        ({"data.augment": ["flap"]}, "unknown augmentation 'flap'; did you mean 'flip'"),
    ],
)
def test_a_wrong_name_in_any_cell_is_found_before_anything_runs(
    override: dict[str, Any], message: str, tmp_path: Path
) -> None:
    grid = write_grid(tmp_path, rows={"good": {}, "wrong": override}, columns={"only": {}})
    with pytest.raises(ScenarioError) as caught:
        cells_of(grid, tmp_path)
    assert str(caught.value).startswith(f"grid 'small', wrong / only: {message}")


def test_a_wrong_hyper_parameter_is_found_before_anything_runs(tmp_path: Path) -> None:
    grid = write_grid(tmp_path, rows={"FedAvg": {"phases.federated.algorithm.weighting": "size"}})
    with pytest.raises(ScenarioError, match=r"grid 'small', FedAvg / 2: phases.federated.algorithm.weighting: must be"):
        cells_of(grid, tmp_path)
