"""Shows the step that a command waits for, and afterwards how long it took.

On a terminal the step is one line with a spinner and the seconds so far, which disappears when the step ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from rayfl.console import print_line, redraws
from rayfl.wording import duration

NOTICEABLE_S = 1.0
"""A step that took less leaves no line."""

Clock = Callable[[], float]
"""Returns monotonic seconds."""


@contextmanager
def step(console: Console, doing: str, what: str, clock: Clock = time.monotonic) -> Iterator[None]:
    """Shows that the block is under way; if it ends well after a noticeable time, prints `ready    data 3.1 s`.

    Args:
        console: Where to print. Nothing else may be drawn there meanwhile, but lines may be printed.
        doing: What is done, as `loading`.
        what: What it is done to, as `data`.
        clock: Measures the time.
    """
    began = clock()
    with _shown(console, f"{doing} {what}", clock):
        yield
    if (took := clock() - began) >= NOTICEABLE_S:
        print_line(console, f"ready    {what} {duration(took)}", style="dim")


def starting(console: Console, what: str) -> AbstractContextManager[None]:
    """The first step of a command, which is said at once, since what the block imports takes a while to load."""
    if not redraws(console):
        print_line(console, f"starting {what}")
    return _shown(console, f"starting {what}", time.monotonic)


def _shown(console: Console, text: str, clock: Clock) -> AbstractContextManager[None]:
    if not redraws(console):
        return nullcontext()
    return _drawn(console, text, clock)


@contextmanager
def _drawn(console: Console, text: str, clock: Clock) -> Iterator[None]:
    # without redirection, since a library that is imported meanwhile may keep the stream that it finds
    line = Live(_Elapsed(text, clock), console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    with line:
        yield


class _Elapsed:
    def __init__(self, text: str, clock: Clock) -> None:
        self._text, self._clock, self._began = text, clock, clock()
        self._spinner = Spinner("dots")

    def __rich__(self) -> Spinner:
        self._spinner.update(text=Text(f"{self._text} {int(self._clock() - self._began)} s", style="dim"))
        return self._spinner
