"""Consoles that print to a file."""

from __future__ import annotations

from pathlib import Path

from rayfl.console import log_console


def test_output_that_cannot_be_written_raises_nothing_and_later_lines_are_appended(tmp_path: Path) -> None:
    log_console(Path("/dev/full")).print("round 1")
    log_console(tmp_path / "removed" / "run.log").print("round 1")
    console = log_console(tmp_path / "run.log")
    console.print("round 1")
    console.print("round 2")
    assert (tmp_path / "run.log").read_text() == "round 1\nround 2\n"
