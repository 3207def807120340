"""Cells side by side on Ray: the figures of the inline backend, and what is said where something is missing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import ray

from rayfl.backends.ray.tasks import RayTask, Returned, nodes_that_miss, run_tasks
from rayfl.config.execution import Resources
from rayfl.errors import RayflError, ResourceError
from rayfl.runs.options import RunOptions
from rayfl.studies.grid.cell_runs import LOG, Outcome, run_cells
from rayfl.studies.grid.cells import Cell, cells_of
from tests.backends.ray.calls import answer, own_process
from tests.studies.grid.test_cells import NO_DATA, write_grid

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def metrics(cells: list[Cell], backend: Any, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Of every cell that was run, without the clock."""
    found = {}
    for event in run_cells(cells, RunOptions(backend=backend, data_dir=NO_DATA), out):
        if isinstance(event, Outcome):
            assert event.error is None
            assert event.cell.finished()
            lines = (event.cell.folder / "metrics.jsonl").read_text().splitlines()
            found[str(event.cell)] = [json.loads(line) | {"seconds": 0} for line in lines]
    return found


def test_a_grid_gives_the_metrics_of_the_inline_backend(tmp_path: Path) -> None:
    grid = write_grid(tmp_path, seeds=[3], columns={"4": {"phases.federated.cohort": 4}})
    ours, theirs = (cells_of(grid, tmp_path / backend) for backend in ("ray", "inline"))
    found = metrics(ours, "ray", tmp_path)
    assert len(found) == 2
    assert found == metrics(theirs, "inline", tmp_path)


def test_a_cell_goes_on_after_its_worker_was_killed_and_after_the_grid_was_interrupted(tmp_path: Path) -> None:
    row = {"phases.federated.until": 1500, "evaluation.every": 50, "checkpoint.rounds": 20}
    grid = write_grid(tmp_path, seeds=[0], rows={"a": row}, columns={"b": {}})
    (cell,), (other,) = (cells_of(grid, tmp_path / backend) for backend in ("ray", "inline"))
    (tmp_path / "ray").mkdir()
    events, killed = run_cells([cell], RunOptions(backend="ray", data_dir=NO_DATA), tmp_path), ""
    for _ in events:
        log = (cell.folder / LOG).read_text() if (cell.folder / LOG).exists() else ""
        if not killed and list(cell.folder.glob("checkpoints/round-*.json")):
            os.kill(json.loads((cell.folder / "status.json").read_text())["process"]["pid"], signal.SIGKILL)
            killed = log
        if killed and "the run continues after round" in log:
            break
    cast("Generator[Any]", events).close()
    assert not cell.finished()
    assert json.loads((cell.folder / "status.json").read_text())["status"] == "interrupted"
    metrics([cell], "ray", tmp_path)
    assert (cell.folder / LOG).read_text().count("the run continues after round") == 2
    metrics([other], "inline", tmp_path)
    model, expected = (each.folder / "model.safetensors" for each in (cell, other))
    assert model.read_bytes() == expected.read_bytes()


def test_a_failed_cell_does_not_stop_the_others(tmp_path: Path) -> None:
    rows = {"raises": {"model": "tests.user_code:RaisesInTraining"}, "good": {}}
    cells = cells_of(write_grid(tmp_path, rows=rows, columns={"only": {}}, seeds=[0]), tmp_path)
    events = list(run_cells(cells, RunOptions(backend="ray", data_dir=NO_DATA), tmp_path))
    errors = {event.cell.row: event.error for event in events if isinstance(event, Outcome)}
    assert errors.pop("good") is None
    assert (errors["raises"] or "").startswith("client ")


def test_a_log_of_an_earlier_run_is_no_run_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cells_of(write_grid(tmp_path), tmp_path)
    for cell in cells:
        cell.folder.mkdir(parents=True)
        (cell.folder / LOG).write_text("interrupted")

    def ticks(*_: Any) -> Iterator[None]:
        yield None
        (cells[0].folder / LOG).unlink()
        yield None

    monkeypatch.setattr("rayfl.backends.ray.tasks.run_tasks", ticks)
    assert list(run_cells(cells, RunOptions(backend="ray", data_dir=NO_DATA), tmp_path)) == [0, 1]


def test_a_worker_that_dies_is_the_result_of_its_task_alone(tmp_path: Path) -> None:
    tasks = [RayTask((number,), Resources(restarts=0)) for number in (4, 5, 6)]
    results = [result for result in run_tasks(answer, tasks, None, tmp_path, NO_DATA) if isinstance(result, Returned)]
    values = {result.task: result.value for result in results}
    assert (values[0], values[2]) == (40, 60)
    assert isinstance(values[1], RayflError)


def test_a_task_that_never_fits_is_rejected_at_once(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"1 worker with 64 CPUs does not fit .* not even one fits"):
        next(run_tasks(answer, [RayTask((1,), Resources(cpus_per_host=64))], None, tmp_path, NO_DATA))


def test_nodes_that_do_not_see_a_folder_are_named(tmp_path: Path) -> None:
    assert nodes_that_miss(tmp_path) == []
    assert len(nodes_that_miss(tmp_path / "elsewhere")) == 1


def test_a_task_with_a_gpu_takes_its_process_with_it(tmp_path: Path) -> None:
    on_gpu = Resources(gpus_per_host=1, device="cpu")
    tasks = [RayTask((number,), on_gpu) for number in range(2)]
    results = run_tasks(own_process, tasks, None, tmp_path, NO_DATA)
    processes = [result.value for result in results if isinstance(result, Returned)]
    assert len(set(processes)) == 2  # one GPU, hence one after another


def test_tasks_wait_on_a_busy_cluster(tmp_path: Path) -> None:
    group = ray.util.placement_group([{"CPU": 3}])
    ray.get(group.ready())
    results = run_tasks(answer, [RayTask((1,), Resources())], None, tmp_path, NO_DATA)
    assert next(results) is None
    ray.util.remove_placement_group(group)
    assert Returned(0, 10) in results
