"""The folder of a run, as everything reads it that a run leaves; one of an earlier format is read by nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import rayfl
from rayfl.errors import ResourceError
from rayfl.runs.archive import EarlierFormatError, GridPlace, RunArchive
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.studies.figures.page.report import write_report
from rayfl.studies.grid.cell_runs import run_cell
from rayfl.studies.grid.results import FinishedRun
from tests.callbacks.scene import StopAt, run
from tests.studies.grid.test_cells import NO_DATA
from tests.studies.grid.test_going_on import cell_of, interrupt


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> rayfl.Result:
    return run(tmp_path_factory.mktemp("runs"))


def test_an_archive_has_what_the_run_returned(result: rayfl.Result) -> None:
    archive = RunArchive(result.directory)
    assert archive.scenario == result.scenario
    assert archive.metrics.equals(result.metrics)
    assert archive.status is not None
    assert (archive.status["status"], archive.place, archive.version) == ("finished", None, rayfl.__version__)
    assert json.loads(json.dumps(asdict(archive.headline))) == archive.environment["headline"]
    assert archive.models[result.metrics["round"][-1].as_py()] == archive.model
    assert archive.privacy is None
    np.testing.assert_equal(archive.data_digests, [archive.environment["data"]["digest"]])


def test_a_run_of_a_grid_records_its_place_and_keeps_it_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(tmp_path)
    interrupt(cell, monkeypatch)
    assert RunArchive(cell.folder).place == GridPlace("small", "a", "b", 0, None)
    rayfl.run(resume=cell.folder, backend="inline")
    assert RunArchive(cell.folder).place == GridPlace("small", "a", "b", 0, None)
    assert run_cell(cell, NO_DATA) is None
    assert RunArchive(cell.folder).place == GridPlace("small", "a", "b", 0, None)


@pytest.mark.parametrize(
    "read",
    [
        rayfl.compare,
        rayfl.plot,
        write_report,
        RunFolder.read,
        lambda folder: FinishedRun.read(GridPlace("grid", "row", "column", 0), folder),
        lambda folder: rayfl.run(resume=folder, more=1, backend="inline"),
        lambda folder: run(folder.parent, start={"run": str(folder)}),
        lambda folder: RunArchive(folder).place,
    ],
    ids=["compare", "plot", "report", "analyse", "table", "resume", "start", "archive"],
)
def test_a_run_of_an_earlier_format_is_named_with_its_version(read: Callable[[Path], object], tmp_path: Path) -> None:
    folder = run(tmp_path).directory
    path = folder / "environment.json"
    facts = json.loads(path.read_text())
    del facts["place"]
    facts["packages"]["rayfl"] = "0.0.9"
    path.write_text(json.dumps(facts))
    with pytest.raises(EarlierFormatError) as caught:
        read(folder)
    assert str(caught.value) == (
        f"'{folder}': rayfl 0.0.9 wrote these records in an earlier format, which this rayfl {rayfl.__version__} does "
        "not read: use that one, or run the scenario again"
    )


@pytest.mark.parametrize("lost", [1, 200], ids=["within the last line", "the last line and part of the one before"])
@pytest.mark.parametrize(
    "read",
    [
        rayfl.compare,
        rayfl.plot,
        write_report,
        lambda folder: rayfl.analyse("curve", folder, backend="inline", quiet=True),
        lambda folder: FinishedRun.read(GridPlace("grid", "row", "column", 0), folder),
    ],
    ids=["compare", "plot", "report", "analyse", "table"],
)
def test_metrics_of_a_finished_run_that_lack_its_last_round_are_damaged(
    read: Callable[[Path], object], lost: int, result: rayfl.Result, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(result.directory, tmp_path / "run"))
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-lost])
    rounds = len(path.read_bytes().splitlines()) - 1
    with pytest.raises(ResourceError) as caught:
        read(folder)
    assert str(caught.value) == (
        f"{path}: cannot be read as the metrics of a finished run, truncated or corrupt? (it ends with round {rounds}, "
        "and the run with round 6)"
    )


def test_a_run_that_a_callback_ended_lacks_no_round(tmp_path: Path) -> None:
    archive = RunArchive(run(tmp_path, callbacks=[StopAt(round=3)], evaluation={"every": 5}).directory)
    archive.check_complete()
    assert [row["round"] for row in archive.rows] == [2, 3]


def test_a_damaged_environment_is_of_no_format(result: rayfl.Result, tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{}")
    RunArchive(tmp_path).check_format()
    with pytest.raises(ResourceError, match=r"environment\.json: cannot be read as the environment of a run"):
        _ = RunArchive(tmp_path).place


def test_readers_of_records_load_no_pytorch() -> None:
    readers = "rayfl.runs.archive, rayfl.studies.grid.archive, rayfl.studies.analysis.run_folder"
    pages = "rayfl.studies.figures.comparison, rayfl.studies.figures.page.report"
    program = f"import sys, {readers}, {pages}; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
