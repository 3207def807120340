"""What a run or grid prints in a notebook: one block below the cell, which ends as its result."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from html import escape
from typing import Any

from rich.console import Console

from rayfl.console import LOG_WIDTH
from rayfl.errors import ScenarioError

RENEWED_EVERY_S = 0.2
"""Least seconds between two changes of a block that only its last line makes."""

_PRE = "white-space:pre-wrap;line-height:1.35;margin:0"


class Block(io.TextIOBase):
    """The file of a console: shows all that is written as one output of a cell.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._shown_at = clock, -RENEWED_EVERY_S
        self._text = self._line = ""
        self._display: Any = None

    def write(self, text: str, /) -> int:
        """Adds text above the last line."""
        self._text += text
        if "\n" in text:
            self._show(f'<pre style="{_PRE}">{escape(self._text + self._line)}</pre>')
        return len(text)

    def renew(self, line: str) -> None:
        """Replaces the last line, which says how far the work is."""
        self._line = line
        if self._clock() - self._shown_at >= RENEWED_EVERY_S:
            self._show(f'<pre style="{_PRE}">{escape(self._text + self._line)}</pre>')

    def end(self, html: str) -> None:
        """Replaces the block by a result; what is written later begins another."""
        self._show(html)
        self._text = self._line = ""
        self._display = None

    def _show(self, html: str) -> None:
        from IPython.display import HTML, display

        self._shown_at = self._clock()
        if self._display is None:
            self._display = display(HTML(html), display_id=True)
        else:
            self._display.update(HTML(html))


def console_of(console: Console | None, quiet: bool) -> Console:
    """The console for a call from Python: the given one, a silent one, in a notebook one with a block, else stdout's.

    Raises:
        ScenarioError: Both were given.
    """
    if console is not None and quiet:
        raise ScenarioError("quiet: has no effect with a console; leave one of them out")
    if console is not None or quiet:
        return console or Console(quiet=True)
    usual = Console()
    if not usual.is_jupyter:
        return usual
    file: Any = Block()
    return Console(file=file, width=LOG_WIDTH, force_jupyter=False)


def block_of(console: Console) -> Block | None:
    """The block that a console writes to, if it is one in a notebook."""
    file: Any = console.file
    return file if isinstance(file, Block) else None


def cell() -> int | None:
    """The number of the notebook's cell that runs now; None outside notebooks."""
    if not Console().is_jupyter:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    return None if shell is None else int(shell.execution_count)
