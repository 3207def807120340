"""Commands end with an exit status, and with one message for an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rayfl
from rayfl.command_line.ending import exit_status
from rayfl.errors import ScenarioError
from tests.test_scenario import MY_ARRAYS, TINY


def fails() -> int:
    raise ScenarioError("seed: is missing")


def interrupted() -> int:
    raise KeyboardInterrupt


def terminated() -> int:
    signal.raise_signal(signal.SIGTERM)
    return 0


def test_an_error_is_one_message_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(fails) == 1
    assert capsys.readouterr().err == "error: seed: is missing\n"


@pytest.mark.parametrize("command", [interrupted, terminated])
def test_sigterm_ends_like_ctrl_c(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert exit_status({interrupted: interrupted, terminated: terminated}[command], "stopped: go on") == 130  # type: ignore[index]
    assert capsys.readouterr().err == "stopped: go on\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_may_run_in_any_thread() -> None:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(exit_status(lambda: 7)))
    thread.start()
    thread.join()
    assert statuses == [7]


def test_a_run_that_is_terminated_says_so_and_leaves_its_metrics(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "my_arrays.py").write_text(MY_ARRAYS)
    checkout = str(Path(rayfl.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(tmp_path)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-u", "-m", "rayfl.scenario", "tiny.toml", "--backend", "inline"]
    endless = "phases.federated.rounds=1000000"
    with subprocess.Popen(
        [*command, endless], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        said = next(line for line in running.stdout if line.startswith("records"))
        next(
            line for line in running.stdout if "test accuracy" in line
        )  # before, a library may swallow it with a warning
        running.terminate()
        _, complaint = running.communicate(timeout=60)
    assert (running.returncode, complaint) == (130, "interrupted\n")
    assert (Path(said.split(maxsplit=1)[1].strip()) / "metrics.jsonl").is_file()
