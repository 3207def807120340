"""Only one process at a time works in a run's folder."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

import rayfl
from rayfl.errors import ResourceError
from rayfl.runs.liveness import this_process
from rayfl.runs.resume import run_in_place
from rayfl.runs.run_lock import LOCK, LOCK_SILENT_S, HeldError, release_stale, run_lock
from tests.callbacks.scene import PLAIN, StopAt, tables

SHORT: dict[str, Any] = tables(phases=[PLAIN | {"rounds": 3}])


@pytest.fixture
def other() -> Any:
    """Another process, which lives until the end of the test."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield psutil.Process(process.pid)
        process.kill()


def held(folder: Path, beat_s_ago: float = 0.0, **holder: Any) -> Path:
    """Writes a lock as another process would."""
    path = folder / LOCK
    path.write_text(json.dumps(this_process() | {"since": "2026-01-01T00:00:00+00:00"} | holder))
    os.utime(path, (time.time() - beat_s_ago,) * 2)
    return path


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_the_loser_is_told_who_holds_the_folder(tmp_path: Path, other: psutil.Process) -> None:
    path = held(tmp_path, 10_000.0, pid=other.pid, began=other.create_time())  # alive, though its beat is old
    before = path.read_bytes()
    with pytest.raises(HeldError) as caught, run_lock(tmp_path):
        pass
    who = f"process {other.pid} on {platform.node()} has held its folder since 2026-01-01T00:00:00+00:00"
    assert f"the run in '{tmp_path}' is still active: {who}; wait until it ends, or stop it" == str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("beat_s_ago", "stale"),
    [(0.0, False), (LOCK_SILENT_S - 30, False), (LOCK_SILENT_S + 1, True)],
)
def test_a_lock_from_another_machine_is_stale_without_a_beat_for_two_minutes(
    beat_s_ago: float, stale: bool, tmp_path: Path
) -> None:
    held(tmp_path, beat_s_ago, host="another", pid=1, began=0.0)
    outcome: AbstractContextManager[Any] = nullcontext() if stale else pytest.raises(HeldError, match="on another")
    with outcome, run_lock(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()


def test_a_lock_of_a_dead_process_on_this_machine_is_stale_at_once(tmp_path: Path) -> None:
    held(tmp_path, pid=dead_pid(), began=0.0)
    with run_lock(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("container", [{"pids": 1}, {"boot": "another"}])
def test_the_lock_of_another_container_that_shares_the_name_of_its_machine_needs_no_visible_process(
    container: dict[str, Any], tmp_path: Path
) -> None:
    held(tmp_path, pid=dead_pid(), began=0.0, **container)
    with pytest.raises(HeldError), run_lock(tmp_path):
        pass
    held(tmp_path, LOCK_SILENT_S + 1, pid=dead_pid(), began=0.0, **container)
    with run_lock(tmp_path):
        pass


@pytest.mark.parametrize("before", [{"began": 0.0}, {"began": 0.0, "pids": 1}, {"began": 0.0, "boot": "another"}])
def test_a_container_that_is_started_again_is_not_kept_out_by_its_earlier_processes(
    before: dict[str, Any], tmp_path: Path
) -> None:
    """Its main process has the same host name and pid each time."""
    held(tmp_path, **before)
    how: list[str] = []
    run_in_place(tmp_path, True, how.append, lambda: None, how.append)
    assert how == ["begin"]
    assert not (tmp_path / LOCK).exists()


def test_a_run_whose_lock_is_stale_counts_as_lost(tmp_path: Path) -> None:
    """Its status.json, with a beat of less than five minutes ago, would still call it active."""
    process = {"host": "another", "pid": 1, "began": 0.0}
    (tmp_path / "status.json").write_text(json.dumps({"status": "running", "reason": None, "process": process}))
    held(tmp_path, LOCK_SILENT_S + 1, **process)
    with run_lock(tmp_path):
        assert json.loads((tmp_path / "status.json").read_text())["status"] == "lost"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"host": 1, "pid": "x", "began": 0}'])
def test_a_lock_that_a_crash_left_damaged_locks_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(content)
    with run_lock(tmp_path):
        pass


def test_a_lock_that_another_has_taken_over_is_not_removed(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        path = held(tmp_path, host="another")
    assert json.loads(path.read_text())["host"] == "another"


def test_those_who_know_that_nothing_works_elsewhere_release_a_lock_from_there_but_not_one_of_here(
    tmp_path: Path, other: psutil.Process
) -> None:
    held(tmp_path, host="another")
    release_stale(tmp_path)
    assert not (tmp_path / LOCK).exists()
    held(tmp_path, pid=other.pid, began=other.create_time())
    with pytest.raises(HeldError):
        release_stale(tmp_path)


@pytest.mark.parametrize("how", ["folder", "resume"])
def test_a_folder_that_is_held_is_neither_resumed_nor_begun_in(how: str, tmp_path: Path, other: psutil.Process) -> None:
    if how == "resume":
        rayfl.run(
            SHORT, backend="inline", folder=tmp_path, callbacks=[StopAt(name="stops", round=1)],
            console=Console(quiet=True),
        )  # fmt: skip
    held(tmp_path, pid=other.pid, began=other.create_time())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    where: Any = {how: tmp_path}
    with pytest.raises(ResourceError, match=f"is still active: process {other.pid}"):
        rayfl.run(SHORT if how == "folder" else None, backend="inline", console=Console(quiet=True), **where)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_new_run_holds_its_folder_and_releases_it(tmp_path: Path) -> None:
    seen: list[int] = []

    class Looks(StopAt):
        def on_round(self, run: Any) -> None:
            seen.append(json.loads((run.folder / LOCK).read_text())["pid"])

    result = rayfl.run(
        SHORT, backend="inline", out=tmp_path, callbacks=[Looks(name="looks", round=9)], console=Console(quiet=True)
    )
    assert set(seen) == {os.getpid()}
    assert not (result.directory / LOCK).exists()


@pytest.mark.parametrize("checkpoint", [{"rounds": 1}, {}], ids=["at a checkpoint", "at its end"])
@pytest.mark.parametrize("ends", ["by itself", "by an error"])
def test_a_run_that_was_taken_over_while_it_was_stopped_leaves_the_records_to_the_other(
    ends: str, checkpoint: dict[str, Any], tmp_path: Path
) -> None:
    """As if the process had been suspended during round 3, and resumed from elsewhere meanwhile."""
    seen: dict[str, bytes] = {}
    ended: list[str] = []

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    class Sleeps(StopAt):
        def on_round(self, run: Any) -> None:
            if run.round.round == 3:
                held(tmp_path, host="another", pid=7)
                shutil.copy(tmp_path / "metrics.jsonl", tmp_path / "copy")  # resuming writes the file anew
                (tmp_path / "copy").replace(tmp_path / "metrics.jsonl")
                seen.update(contents())
                if ends == "by an error":
                    raise RuntimeError("left on purpose")

        def on_end(self, run: Any) -> None:
            ended.append(run.ended)

    said = r"^process 7 on another has taken over the run in '.*' since 2026-01-01T00:00:00\+00:00, when this process"
    with pytest.raises(HeldError, match=said):
        rayfl.run(
            SHORT | {"checkpoint": checkpoint}, backend="inline", folder=tmp_path, console=Console(quiet=True),
            callbacks=[Sleeps(name="sleeps", round=9)],
        )  # fmt: skip
    assert contents() == seen
    assert not (tmp_path / "checkpoints" / "round-000000003.json").exists()
    assert ended == ["failed"]


def test_a_copy_of_a_folder_in_use_is_not_held(tmp_path: Path) -> None:
    with run_lock(tmp_path / "run"):
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        with run_lock(tmp_path / "copy"):
            pass
        with pytest.raises(HeldError), run_lock(tmp_path / "run"):
            pass
