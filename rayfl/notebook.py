"""What a run or grid prints in a notebook: one block below the cell, which ends as its result."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import Any, ClassVar, Protocol, TypeVar

from rich.console import Console

from rayfl.console import LOG_WIDTH
from rayfl.errors import ScenarioError

RENEWED_EVERY_S = 0.2
"""Least seconds between two changes of a block that only its last line makes."""

_PRE = "white-space:pre-wrap;line-height:1.35;margin:0"


class Shown(Protocol):
    """A result of a run or grid: a dataclass that a notebook shows."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def shown_in(self) -> int | None:
        """The number of the cell whose output ended as this result."""

    def _repr_html_(self) -> str: ...


Shows = TypeVar("Shows", bound=Shown)


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
        """Replaces the block by a result."""
        self._show(html)
        self.forget()

    def forget(self) -> None:
        """Leaves the block as it is; what is written later begins another."""
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


@contextmanager
def ending_block(console: Console) -> Iterator[None]:
    """Begins another block after a call that fails, whose text stays below its own cell."""
    try:
        yield
    except BaseException:
        if block := block_of(console):
            block.forget()
        raise


def shown_as(console: Console, result: Shows) -> Shows:
    """Ends a console's block as a result, which the same cell then does not show again."""
    if (block := block_of(console)) is None:
        return result
    block.end(result._repr_html_())
    return replace(result, shown_in=cell())


def is_shown(result: Shown) -> bool:
    """Whether the output of the cell that runs now shows a result already."""
    return result.shown_in is not None and result.shown_in == cell()


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
