"""Progress of a run: a bar on a terminal, plain lines in a job's log."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from rayfl.engine.events import Evaluated, Event, RoundDone, Waiting
from rayfl.report.duration import duration

LINE_EVERY_S = 10.0
VISITS_NAMED = 5


class Pace:
    """Visits per second and seconds per round, over the last 32 rounds of the present phase."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._visits = 0
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=33)

    def add(self, done: RoundDone) -> None:
        if done.phase != self._phase:
            self._phase = done.phase
            self._marks = deque([self._marks[-1]], maxlen=self._marks.maxlen)
        self._visits += done.visits
        self._marks.append((done.seconds, self._visits))

    def describe(self, rounds_left: int) -> str:
        """`42.0 visits/s, 3 min 20 s left`; the time that is left is that of so many rounds at the present pace."""
        (since, visits_before), (now, visits) = self._marks[0], self._marks[-1]
        if now <= since:
            return "– visits/s"
        per_round = (now - since) / (len(self._marks) - 1)
        rate = (visits - visits_before) / (now - since)
        return f"{rate:.3g} visits/s, {duration(rounds_left * per_round)} left"


class Progress:
    """Shows a run's events while it lasts; a context manager.

    On a terminal, a bar with phase, round, accuracy, visits per second and time left. Elsewhere a line for every
    evaluated round, and one for a committed round after `LINE_EVERY_S` seconds without a line.

    phases: (name, rounds) in order; rounds of events count from 1 through all of them.
    clock: seconds that only grow.
    """

    def __init__(
        self, phases: Sequence[tuple[str, int]], console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._phases = phases
        self._last_rounds = list(accumulate(rounds for _, rounds in phases))
        self._console = console
        self._clock = clock
        self._pace = Pace()
        self._round = 0
        self._accuracy = "–"
        self._line_at = clock()
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bar = Bar(
                TextColumn("{task.description}", markup=False, style="bold"),
                BarColumn(bar_width=None),
                TextColumn("accuracy {task.fields[accuracy]}", markup=False, style="green"),
                TextColumn("{task.fields[pace]}", markup=False),
                console=self._console,
                expand=True,
            )
            self._task = self._bar.add_task(
                self._place(1), total=self._last_rounds[-1], accuracy=self._accuracy, pace="starting"
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, event: Event) -> None:
        """Shows one event."""
        match event:
            case RoundDone():
                self._round = event.round
                self._pace.add(event)
                if self._bar is None and self._clock() - self._line_at >= LINE_EVERY_S:
                    self._print_line(event.round, f"training loss {event.train_loss:.4g}")
            case Evaluated():
                self._accuracy = f"{100 * event.accuracy:.2f} %"
                if self._bar is None:
                    self._print_line(event.round, f"test accuracy {self._accuracy}, test loss {event.loss:.4g}")
            case Waiting():
                self._warn(event)
        if self._bar is not None and self._round:
            self._bar.update(
                self._task,
                completed=self._round,
                description=self._place(self._round),
                accuracy=self._accuracy,
                pace=self._pace_now(),
            )

    def _place(self, round: int) -> str:
        index = bisect_left(self._last_rounds, round)
        name, rounds = self._phases[index]
        before = self._last_rounds[index] - rounds
        return f"{name} {round - before}/{rounds}"

    def _pace_now(self) -> str:
        return self._pace.describe(self._last_rounds[-1] - self._round)

    def _print_line(self, round: int, news: str) -> None:
        self._line_at = self._clock()
        place = f"{self._place(round)} (round {round} of {self._last_rounds[-1]})"
        self._console.print(Text(f"{place}: {news}, {self._pace_now()}"), soft_wrap=True)

    def _warn(self, waiting: Waiting) -> None:
        named = ", ".join(waiting.outstanding[:VISITS_NAMED])
        more = len(waiting.outstanding) - VISITS_NAMED
        text = (
            f"warning: nothing came back for {duration(waiting.seconds)} in {self._place(waiting.round)}; "
            f"outstanding: {named}" + (f" and {more} more" if more > 0 else "")
        )
        self._console.print(Text(text, style="yellow"), soft_wrap=True)
