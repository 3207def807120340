"""How far a grid is, shown while its runs end one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TextColumn
from rich.text import Text

from rayfl.console import bar_on, print_line
from rayfl.notebook import block_of
from rayfl.wording import duration


class GridProgress:
    """Shows how far a grid is while its runs end one by one; a context manager.

    Args:
        runs: Number of runs to come.
        work: Total work of these runs, in any unit. The time left is the remaining work at the pace so far.
        console: Where to print.
        clock: Returns monotonic seconds.
    """

    def __init__(self, runs: int, work: float, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._work = runs, work
        self._console, self._clock = console, clock
        self._started = clock()
        self._done = self._failed = self._running = 0
        self._work_done = 0.0
        self._bar: Bar | None = None

    def __enter__(self) -> GridProgress:
        if self._runs:
            self._bar = bar_on(self._console, TextColumn("{task.fields[left]}", markup=False))
        if self._bar is not None:
            self._task = self._bar.add_task(self._counts(), total=self._work, left=self._time())
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def running(self, runs: int) -> None:
        """Shows the number of runs in progress."""
        self._running = runs
        self._update()

    def done(self, cell: str, work: float, news: str) -> None:
        """Shows that a run finished."""
        self._done += 1
        self._end(work, Text(f"{cell}: {news}"))

    def failed(self, cell: str, work: float, reason: str, diverged: bool = False) -> None:
        """Shows that a run failed, or that its training diverged."""
        self._failed += 1
        self._end(work, Text(f"{cell} {'diverged' if diverged else 'failed'}: {reason}", style="red"))

    def _end(self, work: float, line: Text) -> None:
        self._work_done += work
        if self._bar is None and block_of(self._console) is None:
            line.append(f"; {self._counts()}, {self._time()}")
        print_line(self._console, line)
        self._update()

    def _update(self) -> None:
        if block := block_of(self._console):
            block.renew(f"{self._counts()}, {self._time()}")
        if self._bar is not None:
            self._bar.update(self._task, completed=self._work_done, description=self._counts(), left=self._time())

    def _counts(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        running = "" if self._bar is None and block_of(self._console) is None else f", {self._running} running"
        return f"{self._done} of {self._runs} runs{running}{failed}"

    def _time(self) -> str:
        if not self._work_done:
            return "time left unknown"
        taken = self._clock() - self._started
        if self._done + self._failed == self._runs:
            return f"{duration(taken)} in all"
        return f"{duration(taken / self._work_done * (self._work - self._work_done))} left"
