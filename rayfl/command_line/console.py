"""The console of commands that print tables."""

from __future__ import annotations

import sys

from rich.console import Console

PIPE_WIDTH = 1000
"""Characters of a line where there is no terminal: every row of a table is one line there, for `grep`."""


def table_console() -> Console:
    """A console as wide as the terminal; in a pipe, wide enough to wrap nothing."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
