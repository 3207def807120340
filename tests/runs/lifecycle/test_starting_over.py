"""A run that is resumed without a checkpoint: its records stay until a round of the new attempt is committed."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.errors import ResourceError, ScenarioError
from rayfl.runs.archive import RunArchive
from rayfl.runs.old_records import OldRecords
from rayfl.runs.resume import run_in_place
from tests.callbacks.scene import PLAIN, StopAt, tables

SHORT: dict[str, Any] = tables(phases=[PLAIN | {"rounds": 3}], evaluation={"per_client": True})


class Fails(Callback):
    """Fails after a round; 0 is before the first."""

    round: int

    def on_start(self, run: RunSoFar) -> None:
        self.on_round(run)

    def on_round(self, run: RunSoFar) -> None:
        if (run.round.round if run.round else 0) == self.round:
            raise RuntimeError("left on purpose")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(folder: Path, *callbacks: Callback, **given: Any) -> rayfl.Result:
    scenario = None if "resume" in given else SHORT
    where: dict[str, Any] = {} if "resume" in given else {"folder": folder}
    return rayfl.run(
        scenario, backend="inline", callbacks=list(callbacks), console=Console(quiet=True), **where, **given
    )


@pytest.fixture(scope="module")
def once_finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(folder)
    assert not (folder / "checkpoints").exists()
    return folder


@pytest.fixture
def finished(once_finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(once_finished, tmp_path / "run")
    return tmp_path / "run"


def test_a_finished_run_has_nothing_to_resume_and_stays_as_it_is(finished: Path) -> None:
    before = contents(finished)
    with pytest.raises(
        ResourceError, match=r"^nothing to resume: the run in '.*' has finished; add rounds with --more"
    ):
        run(finished, resume=finished)
    assert contents(finished) == before


@pytest.mark.parametrize("edited", [False, True])
def test_a_finished_run_is_not_replaced_by_one_of_fewer_rounds(finished: Path, edited: bool) -> None:
    if edited:
        file = finished / "scenario.toml"
        file.write_text(file.read_text().replace("rounds = 3", "rounds = 1"))
    before = contents(finished)
    with pytest.raises(
        ScenarioError, match=r"has finished with more rounds \(rounds.*: 3, now 1\); run fewer in another"
    ):
        run(finished, resume=finished, overrides={} if edited else {"phases.0.rounds": 1})
    assert contents(finished) == before


def test_more_rounds_that_fail_before_the_first_is_committed_leave_the_finished_run(finished: Path) -> None:
    before = contents(finished)
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(finished, Fails(name="fails", round=0), resume=finished, more=2)
    assert contents(finished) == before
    assert len(run(finished, resume=finished, more=2).metrics) == 5


def test_the_records_of_the_earlier_attempt_end_with_the_first_round_of_the_next(finished: Path) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(finished, Fails(name="fails", round=2), resume=finished, more=2)
    assert [row["round"] for row in RunArchive(finished).rows] == [1]
    assert not list(finished.glob(".before*"))


def test_a_run_that_its_scenario_stopped_has_nothing_to_resume_without_more_rounds(tmp_path: Path) -> None:
    stops = {"callbacks": [{"name": "tests.callbacks.scene:StopAt", "round": 2}]}
    rayfl.run(SHORT | stops, backend="inline", folder=tmp_path, console=Console(quiet=True))
    before = contents(tmp_path)
    with pytest.raises(ResourceError, match=r"it was stopped after round 2 by tests.callbacks.scene:StopAt"):
        run(tmp_path, resume=tmp_path)
    assert contents(tmp_path) == before
    assert len(run(tmp_path, resume=tmp_path, overrides={"callbacks": []}).metrics) == 3


def test_a_run_that_a_program_stopped_goes_on_without_that_program(tmp_path: Path) -> None:
    run(tmp_path, StopAt(name="stops", round=2))
    assert len(run(tmp_path, resume=tmp_path).metrics) == 3


def test_a_finished_run_that_is_asked_for_again_counts_as_done(finished: Path) -> None:
    """Its caller, a grid or another run's start, was killed before it noted that."""

    def fails(*_: Any) -> None:
        raise AssertionError("it was run again")

    before = contents(finished)
    run_in_place(finished, True, fails, fails, fails)
    assert contents(finished) == before


@pytest.mark.parametrize("moves", range(8))
@pytest.mark.parametrize("method", ["set_aside", "put_back"])
def test_a_kill_while_records_are_moved_loses_none(
    method: str, moves: int, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the moves is the last one that a killed process made."""
    before, replace, left = contents(finished), Path.replace, iter(range(moves))

    def killed(path: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return replace(path, target)

    old = OldRecords(finished)
    if method == "put_back":
        old.set_aside()
        (finished / "metrics.jsonl").write_text("of the new attempt")
        (finished / "status.json").write_text("of the new attempt")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with suppress(KeyboardInterrupt):
            getattr(old, method)()
    OldRecords(finished).put_back()
    assert contents(finished) == before


@pytest.mark.parametrize("in_both", [True, False])
def test_records_that_a_uri_holds_as_set_aside_and_as_being_moved_are_put_back(in_both: bool, finished: Path) -> None:
    """A kill between writing the files under the folder's new name and removing those under its old one."""
    before, old = contents(finished), OldRecords(finished)
    old.set_aside()
    moving = finished / ".before-moving"
    moving.mkdir()
    for path in list((finished / ".before").iterdir())[::2]:
        moving.joinpath(path.name).write_bytes(path.read_bytes())
        if not in_both:
            path.unlink()
    (finished / "metrics.jsonl").write_text("of the new attempt")
    assert OldRecords(finished).put_back()
    assert contents(finished) == before


def test_records_are_dropped_under_both_names(finished: Path) -> None:
    old = OldRecords(finished)
    old.set_aside()
    (finished / ".before-moving").mkdir()
    (finished / ".before-moving" / "metrics.jsonl").touch()
    old.drop()
    assert not list(finished.glob(".before*"))
    assert not old.put_back()
