"""The consoles of commands that print tables, and of runs that print to a file."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

LOG_WIDTH = 120
"""Characters of a line in a file."""

PIPE_WIDTH = 1000
"""Characters of a line where there is no terminal: every row of a table is one line there, for `grep`."""


def table_console() -> Console:
    """A console as wide as the terminal; in a pipe, wide enough to wrap nothing."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def log_console(path: Path) -> Console:
    """A console that appends to a file. What cannot be written, as on a full disk, is left out and raises no error."""
    file: Any = _Log(path)
    return Console(file=file, width=LOG_WIDTH, force_jupyter=False)  # in a notebook, rich would ignore `file`


class _Log(io.TextIOBase):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def write(self, text: str, /) -> int:
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(text)
        return len(text)
