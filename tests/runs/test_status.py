"""status.json distinguishes a run that was killed from one that is running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import rayfl
from rayfl.runs.liveness import STATUS_SILENT_S, Heartbeat
from rayfl.runs.status import LOST, STATUS, Status, read_status

WRITES = """
import sys
from pathlib import Path
from rayfl.runs.status import Status

status = Status(Path(sys.argv[1]), 3)
status.running()
print("running", flush=True)
sys.stdin.read()
"""


def status_of(folder: Path) -> str:
    found = read_status(folder)
    assert found is not None
    return str(found["status"])


def change(folder: Path, **process: Any) -> None:
    content = json.loads((folder / STATUS).read_text())
    """Changes what status.json says of its process; removes a key for None."""
    content["process"] = {key: value for key, value in (content["process"] | process).items() if value is not None}
    (folder / STATUS).write_text(json.dumps(content))


@pytest.fixture
def running(tmp_path: Path) -> Path:
    """The folder of a run in this process."""
    status = Status(tmp_path, 3)
    status.running()
    return tmp_path


def test_a_run_whose_process_was_killed_is_lost_and_says_which_process_it_was(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(rayfl.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        assert status_of(tmp_path) == "running"
        process.send_signal(signal.SIGKILL)
    found = read_status(tmp_path)
    assert found is not None
    assert found["status"] == LOST
    assert found["reason"].startswith(f"process {process.pid} on ")
    assert json.loads((tmp_path / STATUS).read_text())["status"] == "running"


def test_a_killed_process_whose_parent_has_not_looked_yet_is_gone_too(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = psutil.Process(process.pid).create_time()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    Status(tmp_path, 3).running()
    change(tmp_path, pid=process.pid, began=began)
    assert status_of(tmp_path) == LOST
    process.communicate()


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"host": "another"},
        {"boot": "another", "pid": 2**30},
        {"pids": 1, "pid": 2**30},
        {"began": 0.0, "boot": None, "pids": None},
    ],
    ids=["other host", "other boot", "other container", "number used again, of an older version"],
)
def test_of_processes_that_are_not_in_the_process_table_the_heartbeat_decides(
    elsewhere: dict[str, Any], running: Path
) -> None:
    change(running, **elsewhere)
    assert status_of(running) == "running"
    before = time.time() - STATUS_SILENT_S - 1
    os.utime(running / STATUS, (before, before))
    assert status_of(running) == LOST


def test_a_process_is_gone_at_once_when_its_number_was_given_again(running: Path) -> None:
    change(running, began=0.0)
    assert status_of(running) == LOST


def test_a_process_that_lives_here_needs_no_heartbeat(running: Path) -> None:
    os.utime(running / STATUS, (0, 0))
    assert status_of(running) == "running"


@pytest.mark.parametrize("ending", ["finished", "failed"])
def test_how_a_run_ended_stands_when_its_process_is_gone(ending: str, tmp_path: Path) -> None:
    status = Status(tmp_path, 3)
    status.running()
    if ending == "finished":
        status.finished()
    else:
        status.ended_early(ValueError("no"))
    change(tmp_path, pid=2**30)
    assert status_of(tmp_path) == ending


def test_a_run_that_ends_while_it_is_looked_at_is_not_lost(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object) -> bool:
        Status(running, 3).finished()
        return True

    monkeypatch.setattr("rayfl.runs.status.is_gone", ends)
    assert status_of(running) == "finished"


def test_a_heartbeat_renews_the_files_time_until_it_is_stopped_or_the_file_is_gone(tmp_path: Path) -> None:
    class Beats:
        """Does not wait, and is stopped after two beats."""

        left = 2

        def wait(self, timeout_s: float) -> bool:
            self.left -= 1
            return self.left < 0

    path = tmp_path / STATUS
    path.touch()
    heart = Heartbeat(path)
    heart.stop()
    os.utime(path, (0, 0))
    heart._stopped = beats = Beats()  # type: ignore[assignment]
    heart._beat()
    assert path.stat().st_mtime > 0
    assert beats.left == -1
    path.unlink()
    heart._stopped = beats = Beats()  # type: ignore[assignment]
    heart._beat()
    assert beats.left == 1
