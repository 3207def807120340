from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console

from rayfl.studies.grid.progress import GridProgress


def clock(*seconds: float) -> Iterator[float]:
    yield from seconds


def said(terminal: bool) -> tuple[Console, StringIO]:
    text = StringIO()
    return Console(file=text, width=100, force_terminal=terminal), text


def test_elsewhere_than_on_a_terminal_every_run_that_ends_is_a_line() -> None:
    console, text = said(terminal=False)
    seconds = clock(0.0, 30.0, 60.0, 125.0)
    with GridProgress(3, 40, console, lambda: next(seconds)) as progress:
        progress.running(2)
        progress.done("FedAvg / 0.1 / seed 0", 10, "best 50.00 %, 12 s")
        progress.failed("FedAvg / 0.1 / seed 1", 10, "the loss is nan [here]", diverged=True)
        progress.done("FedAvg / 0.1 / seed 2", 20, "best 60.00 %, 1 min 5 s")
    # 10 of 40 took 30 s, so 30 more take 90 s; then 20 of 40 took 60 s
    assert text.getvalue().splitlines() == [
        "FedAvg / 0.1 / seed 0: best 50.00 %, 12 s; 1 of 3 runs, 1 min 30 s left",
        "FedAvg / 0.1 / seed 1 diverged: the loss is nan [here]; 1 of 3 runs, 1 failed, 1 min 0 s left",
        "FedAvg / 0.1 / seed 2: best 60.00 %, 1 min 5 s; 2 of 3 runs, 1 failed, 2 min 5 s in all",
    ]


def test_a_terminal_has_a_bar_with_what_is_done_running_and_failed() -> None:
    console, text = said(terminal=True)
    with GridProgress(3, 40, console) as progress:
        progress.running(2)
        progress.failed("FedAvg / 0.1 / seed 1", 10, "no such column")
    assert "FedAvg / 0.1 / seed 1 failed: no such column" in text.getvalue()
    assert "0 of 3 runs, 2 running, 1 failed" in text.getvalue()


def test_nothing_to_run_shows_nothing() -> None:
    console, text = said(terminal=True)
    with GridProgress(0, 0, console):
        pass
    assert text.getvalue() == ""
