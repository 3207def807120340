"""Progress of a run: a bar on a terminal, plain lines in the log of a job."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TextColumn

from rayfl.console import bar_on, print_line, print_warning
from rayfl.engine.events import (
    BudgetSpent,
    Evaluated,
    Event,
    HostRestarted,
    HostsChanged,
    Recovering,
    RoundDone,
    Waiting,
)
from rayfl.engine.plan.headline import Headline
from rayfl.notebook import block_of
from rayfl.wording import duration

LINE_EVERY_S = 10.0
UPDATES_NAMED = 5


class Pace:
    """Client updates per second and seconds per round, over the last 32 rounds of the current phase."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._client_updates = 0
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=33)

    def add(self, done: RoundDone) -> None:
        """Takes in a committed round."""
        if done.phase != self._phase:
            self._phase = done.phase
            self._marks = deque([self._marks[-1]], maxlen=self._marks.maxlen)
        self._client_updates += done.client_updates
        self._marks.append((done.seconds, self._client_updates))

    def state(self) -> dict[str, Any]:
        """The state to resume from, as plain data."""
        return {"phase": self._phase, "client_updates": self._client_updates, "marks": [list(m) for m in self._marks]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that `state` returned."""
        self._phase, self._client_updates = state["phase"], state["client_updates"]
        marks = [(seconds, updates) for seconds, updates in state["marks"]]
        self._marks = deque(marks, maxlen=self._marks.maxlen)

    def describe(self, rounds_left: int) -> str:
        """Returns `42 client updates/s, 3 min 20 s left`.

        Args:
            rounds_left: Remaining rounds; assumes that they take as long as those of the current phase.
        """
        (since, updates_before), (now, updates) = self._marks[0], self._marks[-1]
        if now <= since:
            return "– client updates/s"
        per_round = (now - since) / (len(self._marks) - 1)
        rate = (updates - updates_before) / (now - since)
        time_left = f", {duration(rounds_left * per_round)} left" if rounds_left else ""
        return f"{rate:.3g} client updates/s{time_left}"


class Progress:
    """Shows how far a run is; a context manager.

    On a terminal it is a bar with phase, round, headline metric, client updates per second and time left. Elsewhere it
    is a line for every evaluated round, and one for a committed round after `LINE_EVERY_S` seconds without a line; in a
    notebook, one line that is renewed. The round of these lines never decreases: an evaluation that is reported after
    the line of a later round, since rounds do not wait for it, gets a line of that round, which names its own.

    Args:
        phases: (name, rounds) in order; rounds of events count from 1 through all of them.
        console: Where to print.
        headlines: The metric to show for each phase.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        phases: Sequence[tuple[str, int]],
        console: Console,
        headlines: Mapping[str, Headline],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._phases = phases
        self._last_rounds = list(accumulate(rounds for _, rounds in phases))
        self._console = console
        self._headlines = headlines
        self._clock = clock
        self._pace = Pace()
        self._round, self._simulated = 0, ""
        self._score = f"{headlines[phases[0][0]].words} –"
        self._line_at, self._line_round = clock(), 0
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        self._bar = bar_on(
            self._console,
            TextColumn("{task.fields[score]}", markup=False, style="green"),
            TextColumn("{task.fields[pace]}", markup=False),
        )
        if self._bar is not None:
            self._task = self._bar.add_task(
                self._place(max(1, self._round)),
                total=self._last_rounds[-1],
                completed=self._round,
                score=self._score,
                pace="starting",
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
                if event.simulated is not None and event.simulated.seconds:
                    self._simulated = f", {duration(event.simulated.seconds)} simulated"
                if self._bar is None and self._clock() - self._line_at >= LINE_EVERY_S:
                    loss = f"training loss {event.train_loss:.4g}" if event.steps else "without training"
                    self._print_line(event.round, loss)
            case Evaluated():
                headline = self._headlines[event.phase]
                self._score = f"{headline.words} {headline.text(event.scores[headline.column])}"
                if self._bar is None:
                    test_loss = None if headline.metric == "loss" else event.scores["test_loss"]
                    also = "" if test_loss is None or math.isnan(test_loss) else f", test loss {test_loss:.4g}"
                    late = f"after round {event.round}: " if event.round < self._line_round else ""
                    self._print_line(event.round, f"{late}{self._score}{also}")
                for remark in event.remarks:
                    print_line(self._console, f"round {event.round}: {remark}", style="yellow")
            case Waiting():
                self._warn(event)
            case Recovering():
                after = f"after round {event.round}" if event.round else "from the beginning"
                attempt = f"in {duration(event.pause_s)} (attempt {event.attempt} of {event.most})"
                print_warning(self._console, f"{event.reason}; the run continues {after} {attempt}")
            case HostRestarted():
                print_warning(
                    self._console, f"worker {event.host} died and was restarted; repeating its client updates"
                )
            case HostsChanged():
                workers = f"{event.hosts} worker{'s' * (event.hosts != 1)} after round {event.round}"
                change = "grown" if event.hosts > event.before else "shrunk"
                print_line(self._console, f"the cluster has {change}: {workers}, {event.before} before")
            case BudgetSpent():
                ends = "the run ends" if event.ends_run else f"phase {event.phase} ends"
                print_line(self._console, f"{ends} before round {event.round}: {event.reason}", style="yellow")
        if self._bar is not None and self._round:
            self._bar.update(
                self._task,
                completed=self._round,
                description=self._place(self._round),
                score=self._score,
                pace=self._pace_now(),
            )

    def state(self) -> dict[str, Any]:
        return {"round": self._round, "score": self._score, "pace": self._pace.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round, self._score = state["round"], state["score"]
        self._pace.restore(state["pace"])

    def _place(self, round: int) -> str:
        index = bisect_left(self._last_rounds, round)
        name, rounds = self._phases[index]
        before = self._last_rounds[index] - rounds
        return f"{name} {round - before}/{rounds}"

    def _pace_now(self) -> str:
        return self._pace.describe(self._last_rounds[-1] - self._round)

    def _print_line(self, round: int, news: str) -> None:
        self._line_at, self._line_round = self._clock(), max(round, self._line_round)
        place = f"{self._place(self._line_round)} (round {self._line_round} of {self._last_rounds[-1]})"
        line = f"{place}: {news}{self._simulated}, {self._pace_now()}"
        if block := block_of(self._console):
            block.renew(line)
        else:
            print_line(self._console, line)

    def _warn(self, waiting: Waiting) -> None:
        named = ", ".join(waiting.outstanding[:UPDATES_NAMED])
        more = len(waiting.outstanding) - UPDATES_NAMED
        named += f" and {more} more" if more > 0 else ""
        where = self._place(waiting.round)
        print_warning(self._console, f"no answer for {duration(waiting.seconds)} in {where}; still waiting for {named}")
