"""Progress of a grid: one bar on a terminal, and a line for every run that ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from rayfl.report.duration import duration


class GridProgress:
    """Shows how far a grid is while its runs end one by one; a context manager.

    work: of all runs to come together, in any unit; the time that is left is that of the work that is left, at the
        pace of the runs that have ended. clock: seconds that only grow.
    """

    def __init__(self, runs: int, work: float, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._work = runs, work
        self._console, self._clock = console, clock
        self._started = clock()
        self._done = self._failed = self._running = 0
        self._work_done = 0.0
        self._bar: Bar | None = None

    def __enter__(self) -> GridProgress:
        if self._runs and self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bar = Bar(
                TextColumn("{task.description}", markup=False, style="bold"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[left]}", markup=False),
                console=self._console,
                expand=True,
            )
            self._task = self._bar.add_task(self._counts(), total=self._work, left=self._left())
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def running(self, runs: int) -> None:
        """So many are under way."""
        self._running = runs
        self._update()

    def done(self, cell: str, work: float, news: str) -> None:
        """A run ended well."""
        self._done += 1
        self._end(work, Text(f"{cell}: {news}"))

    def failed(self, cell: str, work: float, error: str) -> None:
        self._failed += 1
        self._end(work, Text(f"{cell} failed: {error}", style="red"))

    def _end(self, work: float, line: Text) -> None:
        self._work_done += work
        if self._bar is None:
            line.append(f"; {self._counts()}, {self._left()}")
        self._console.print(line, soft_wrap=True)
        self._update()

    def _update(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._work_done, description=self._counts(), left=self._left())

    def _counts(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        running = f", {self._running} running" if self._bar is not None else ""
        return f"{self._done} of {self._runs} runs{running}{failed}"

    def _left(self) -> str:
        if not self._work_done:
            return "time left unknown"
        pace = (self._clock() - self._started) / self._work_done
        return f"{duration(pace * (self._work - self._work_done))} left"
