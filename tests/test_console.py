"""Consoles that print to a file, and lines that are wrapped."""

from __future__ import annotations

import io
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rayfl.console import log_console, print_wrapped


def test_output_that_cannot_be_written_raises_nothing_and_later_lines_are_appended(tmp_path: Path) -> None:
    log_console(Path("/dev/full")).print("round 1")
    log_console(tmp_path / "removed" / "run.log").print("round 1")
    console = log_console(tmp_path / "run.log")
    console.print("round 1")
    console.print("round 2")
    assert (tmp_path / "run.log").read_text() == "round 1\nround 2\n"


@given(st.text(st.sampled_from("ab/ \N{CJK UNIFIED IDEOGRAPH-4E00}"), max_size=60), st.integers(12, 40))
def test_a_wrapped_line_loses_nothing_but_spaces_where_it_breaks(text: str, width: int) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None, _environ={})
    print_wrapped(console, text, indent=9)
    lines = file.getvalue().removesuffix("\n").split("\n")
    assert all(line.startswith(" " * 9) for line in lines[1:])
    assert "".join("".join(lines).split()) == "".join(text.split())
    words = [word for line in lines for word in re.findall(r"[^\s/]+", line)]
    assert words == re.findall(r"[^\s/]+", text)  # no name is broken
