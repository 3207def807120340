"""Interrupted cells, and the scenarios that cells start from, continue from their last checkpoints."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import rayfl
from rayfl.engine.events import Event, RoundDone
from rayfl.errors import ScenarioError
from rayfl.files import write_json
from rayfl.runs.archive import RunArchive
from rayfl.runs.status import Status
from rayfl.studies.grid.cell_runs import BEGUN, LOG, run_cell
from rayfl.studies.grid.cells import Cell, cells_of
from rayfl.studies.grid.schema import Grid, load_grid
from tests.studies.grid.test_cells import NO_DATA, SCENARIO, write_grid

ROW = {"phases.federated.until": 5, "checkpoint.rounds": 2}


class Interrupted:
    """Sends a signal after a round, only the first time; by default SIGINT."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int, times: int = 1) -> None:
        self._after, self._times, self._add, self._sent = after, times, Status.add, False
        monkeypatch.setattr(Status, "add", lambda status, event: self._seen(status, event))

    def _seen(self, status: Status, event: Event) -> None:
        self._add(status, event)
        if isinstance(event, RoundDone) and event.round == self._after and not self._sent:
            self._sent = True
            for _ in range(self._times):
                signal.raise_signal(signal.SIGINT)


def grid(folder: Path, **row: Any) -> Grid:
    return write_grid(folder, seeds=[0], rows={"a": ROW | row}, columns={"b": {}})


def cell_of(folder: Path, **row: Any) -> Cell:
    (cell,) = cells_of(grid(folder, **row), folder / "runs")
    return cell


def figures(cell: Cell) -> tuple[list[dict[str, Any]], bytes]:
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in RunArchive(cell.folder).rows]
    return rows, (cell.folder / "model.safetensors").read_bytes()


def interrupt(cell: Cell, monkeypatch: pytest.MonkeyPatch, after: int = 3, times: int = 1) -> None:
    Interrupted(monkeypatch, after, times)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell, NO_DATA)
    assert not cell.finished()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], bytes]:
    cell = cell_of(tmp_path_factory.mktemp("undisturbed"))
    assert run_cell(cell, NO_DATA) is None
    return figures(cell)


def test_a_cell_that_was_interrupted_goes_on_to_the_same_bits(
    undisturbed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(tmp_path)
    interrupt(cell, monkeypatch)
    assert run_cell(cell, NO_DATA) is None
    assert cell.finished()
    assert figures(cell) == undisturbed
    log = (cell.folder / LOG).read_text()
    assert "the run continues after round 3" in log, log
    assert log.count("records: ") == 2


def test_a_cell_whose_process_was_killed_elsewhere_goes_on_at_once(
    undisturbed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeat may still be recent, but the lock of the grid excludes any other process."""
    cell = cell_of(tmp_path)
    interrupt(cell, monkeypatch)
    status = json.loads((cell.folder / "status.json").read_text())
    process = status["process"] | {"host": "another"}
    write_json(cell.folder / "status.json", status | {"status": "running", "process": process})
    assert run_cell(cell, NO_DATA) is None
    assert figures(cell) == undisturbed
    assert "the run continues after round 3" in (cell.folder / LOG).read_text()


def test_a_cell_that_was_interrupted_before_its_first_checkpoint_begins_again(
    undisturbed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(tmp_path)
    interrupt(cell, monkeypatch, after=1, times=2)
    assert run_cell(cell, NO_DATA) is None
    assert figures(cell) == undisturbed
    assert "the run starts over: it was stopped before its first checkpoint" in (cell.folder / LOG).read_text()


@pytest.mark.parametrize("damage", ["state", "records"])
def test_a_cell_whose_checkpoint_is_damaged_begins_again(
    damage: str, undisturbed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(tmp_path, **{"checkpoint.keep": 1})
    interrupt(cell, monkeypatch)
    damaged = {
        "state": cell.folder.glob("checkpoints/states/*/*"),
        "records": [cell.folder / "metrics.jsonl"],
    }
    for path in damaged[damage]:
        path.write_bytes(path.read_bytes()[:-20])
    assert run_cell(cell, NO_DATA) is None
    assert figures(cell) == undisturbed
    assert "warning: the run starts over: " in (cell.folder / LOG).read_text()


def test_an_interrupted_run_of_other_settings_is_moved_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = {"phases.federated.local.lr": 0.1}
    interrupt(cell_of(tmp_path, **slow), monkeypatch)
    cell = cell_of(tmp_path)
    (cell.folder / "stray").touch()
    rayfl.grid(tmp_path / "small.grid.toml", backend="inline", out=tmp_path / "runs")
    assert "0 finished already, 1 of other settings to be moved aside" in " ".join(capsys.readouterr().out.split())
    assert cell.finished()
    assert not (cell.folder / "stray").exists()
    assert "continues" not in (cell.folder / LOG).read_text()
    (aside,) = cell.folder.parent.glob("seed_0-stopped-*")
    assert rayfl.run(resume=aside, backend="inline", quiet=True).metrics["round"].to_pylist() == [1, 2, 3, 4, 5]


def test_a_finished_cell_that_somebody_extended_is_not_the_grids(tmp_path: Path) -> None:
    cell = cell_of(tmp_path)
    assert run_cell(cell, NO_DATA) is None
    rayfl.run(resume=cell.folder, more=2, backend="inline", quiet=True)
    with pytest.raises(ScenarioError, match=r"a run of another scenario(.|\n)*rounds: 6 before, 4 now"):
        cell.finished()


def test_a_cell_that_somebody_resumed_to_other_rounds_is_not_the_grids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(tmp_path)
    interrupt(cell, monkeypatch)
    extended = rayfl.run(resume=cell.folder, more=2, backend="inline", quiet=True)
    assert "a run of another scenario" in str(run_cell(cell, NO_DATA))
    assert not cell.finished()
    assert RunArchive(cell.folder).rows[-1]["round"] == extended.metrics["round"].to_pylist()[-1] == 7


def test_the_failure_of_other_settings_is_none_of_these(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"backend": "inline", "out": tmp_path / "runs", "quiet": True}
    path = tmp_path / "small.grid.toml"
    grid(tmp_path)
    high = {"phases.federated.local.lr": 3e38}
    assert rayfl.grid(path, overrides=high, **shared).failed
    assert "| diverged |" in (tmp_path / "runs" / "small" / "table.md").read_text()
    rayfl.grid(path, overrides=high, table_only=True, **shared)
    assert "| diverged |" in (tmp_path / "runs" / "small" / "table.md").read_text()
    rayfl.grid(path, table_only=True, **shared)
    assert "| not run |" in (tmp_path / "runs" / "small" / "table.md").read_text()


def test_a_cell_that_began_with_other_code_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of(tmp_path)
    interrupt(cell, monkeypatch)
    begun = json.loads((cell.folder / BEGUN).read_text())
    write_json(cell.folder / BEGUN, begun | {"code": begun["code"] | {"tests.user_code": "0"}})
    assert run_cell(cell, NO_DATA) is None
    assert "continues" not in (cell.folder / LOG).read_text()


SECURE = {"noise_multiplier": 3.0, "max_grad_norm": 1.0, "secure": True}


def charged(folder: Path) -> list[int]:
    lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    return [line["round"] for line in lines if "round" in line]


def test_a_secure_cell_is_charged_for_what_it_repeats_even_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = {"lr": 0.5, "batch_size": 8, "dp": SECURE}
    row = {"phases.cyclic.local": local, "phases.federated.local": local, "phases.federated.until": 2}
    cell = cell_of(tmp_path, **row)
    interrupt(cell, monkeypatch, after=1)
    for manifest in cell.folder.glob("checkpoints/round-*.json"):
        manifest.write_text("{}")
    assert run_cell(cell, NO_DATA) is None
    assert charged(cell.folder) == [1, 1, 2]
    changed = cell_of(tmp_path, **row | {"phases.federated.until": 3})
    (changed.folder / "finished.json").unlink()
    assert run_cell(changed, NO_DATA) is None
    assert charged(changed.folder) == [1, 2, 3]
    (aside,) = changed.folder.parent.glob("seed_0-stopped-*")
    assert charged(aside) == [1, 1, 2]


def test_a_scenario_that_a_cell_starts_from_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = SCENARIO | {"phases": [{"name": "early", "rounds": 4, "cohort": 2}], "checkpoint": {"rounds": 1}}
    results = []
    for name in ("undisturbed", "disturbed"):
        folder = tmp_path / name
        folder.mkdir()
        write_grid(folder)
        (folder / "before.toml").write_text(_toml(before))
        tables = {"seeds": [0], "rows": {"a": {"start": {"scenario": "before.toml"}}}, "columns": {"b": {}}}
        (folder / "small.grid.toml").write_text(_toml({"name": "small", "scenario": "tiny.toml"} | tables))
        (cell,) = cells_of(load_grid(folder / "small.grid.toml"), folder / "runs")
        if name == "disturbed":
            interrupt(cell, monkeypatch, after=2)
        assert run_cell(cell, NO_DATA) is None
        results.append(figures(cell))
    assert results[0] == results[1]
    log = (cell.folder / LOG).read_text()
    assert "resumes first" in log
    assert "the run continues after round 2" in log


def _toml(tables: Any) -> str:
    import tomli_w

    return tomli_w.dumps(tables)
