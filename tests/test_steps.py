"""The steps before the first round: what is shown while one waits, and what is left of it."""

from __future__ import annotations

import io
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from rayfl.console import bar_on
from rayfl.steps import step


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def console_to(terminal: bool, quiet: bool = False) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=80, quiet=quiet, color_system=None, _environ={}), file


@pytest.mark.parametrize(("seconds", "line"), [(3.14, "ready    data 3.1 s\n"), (0.9, "")])
def test_a_log_has_a_line_for_each_step_that_took_noticeable_time(seconds: float, line: str) -> None:
    (console, file), clock = console_to(terminal=False), Clock()
    with step(console, "loading", "data", clock):
        clock.now += seconds
    assert file.getvalue() == line


def test_a_terminal_shows_the_step_under_way_and_erases_it() -> None:
    (console, file), clock = console_to(terminal=True), Clock()
    with step(console, "loading", "data", clock):
        assert "loading data 0 s" in file.getvalue()
        clock.now += 12.7
        console.print("a line meanwhile")
    shown, _, left = file.getvalue().rpartition("\x1b[2K")  # erases the line
    assert shown.index("a line meanwhile") < shown.rindex("loading data 12 s")
    assert left == "ready    data 13 s\n"


def test_a_step_that_fails_is_not_ready() -> None:
    (console, file), clock = console_to(terminal=False), Clock()

    def load() -> None:
        with step(console, "loading", "data", clock):
            clock.now += 60
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        load()
    assert file.getvalue() == ""


def test_a_quiet_console_draws_nothing_even_on_a_terminal() -> None:
    (console, file), clock, before = console_to(terminal=True, quiet=True), Clock(), threading.active_count()
    with step(console, "loading", "data", clock):
        clock.now += 60
        assert threading.active_count() == before
    assert bar_on(console) is None
    assert file.getvalue() == ""


@pytest.mark.parametrize("command", [["run", "femnist_cyclic", "--quick"], ["grid", "cyclicfl_table_2", "--quick"]])
def test_a_command_says_what_it_starts_before_it_loads_pytorch(command: list[str]) -> None:
    program = "import sys; sys.modules['torch'] = None; from rayfl.__main__ import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "--backend", "inline"], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"starting {command[1]}\n"
    assert "No module named 'torch'" in done.stderr or "import of torch halted" in done.stderr
