"""Commands end with an exit status, and with one message for an error."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

import rayfl
from rayfl.cli.exit_status import exit_status
from rayfl.errors import ScenarioError
from tests.cli.test_run import MY_ARRAYS, TINY


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


def test_characters_that_the_output_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", line_buffering=True))

    def tells() -> int:
        print("site\N{LATIN SMALL LETTER E WITH ACUTE}")
        Console().print("sit\N{LATIN SMALL LETTER E WITH ACUTE}")
        return 0

    assert exit_status(tells) == 0
    assert written.getvalue() == b"site?\nsit?\n"


def test_a_command_whose_minutes_are_over_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def over() -> int:
        signal.raise_signal(signal.SIGALRM)
        return 0

    assert exit_status(over) == 130
    assert capsys.readouterr().err == "--minutes: the time is over\ninterrupted\n"


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


ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.slow  # only a process of its own loses its terminal; tests/runs/test_endings.py sends SIGHUP in this one
def test_a_run_whose_terminal_is_closed_ends_with_a_checkpoint(tmp_path: Path) -> None:
    """Nothing can be printed any more, as when a connection over SSH is lost."""
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "my_arrays.py").write_text(MY_ARRAYS)
    checkout = str(Path(rayfl.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(tmp_path)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ON_TERMINAL, "-m", "rayfl.scenario", "tiny.toml", "--backend", "inline"]
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        [*command, "phases.federated.rounds=1000000"],
        cwd=tmp_path, env=environment, stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True,
    ) as running:  # fmt: skip
        os.close(its_end)
        said = b""
        while b"federated 1" not in said:  # on its progress bar
            said += os.read(terminal, 4096)
        os.close(terminal)
        assert running.wait(timeout=60) == 130
    (status,) = tmp_path.glob("runs/*/status.json")
    told = json.loads(status.read_text())
    assert (told["status"], told["reason"]) == ("interrupted", "SIGHUP")
    (manifest,) = status.parent.glob("checkpoints/*.json")
    assert int(manifest.stem.removeprefix("round-")) == told["committed_rounds"]


@pytest.mark.slow
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
