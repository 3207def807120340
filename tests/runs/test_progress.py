from __future__ import annotations

import io
import math
from dataclasses import replace

from rich.console import Console

from rayfl.engine.events import HostsChanged, RoundDone, Waiting
from rayfl.engine.totals import Traffic
from rayfl.runs.progress import Progress
from tests.runs.evaluations import HEADLINES, evaluated

PHASES = [("cyclic", 2), ("federated", 98)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def done(phase: str, round: int, seconds: float, updates: int = 10) -> RoundDone:
    first = 0 if phase == "cyclic" else 2
    return RoundDone(phase, round, round - first, 2.5, updates, 100, Traffic(), seconds)


def log() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=False, width=80), file


def terminal() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=110, color_system=None, _environ={}), file


def test_a_log_has_one_unbroken_line_for_each_evaluated_round() -> None:
    console, file = log()
    with Progress(PHASES, console, HEADLINES, Clock()) as progress:
        progress.add(done("cyclic", 1, 2.0))
        progress.add(done("cyclic", 2, 4.0))
        progress.add(evaluated("cyclic", 2, 1.25, 0.5, 100))
    assert file.getvalue() == (
        "cyclic 2/2 (round 2 of 100): test accuracy 50.00 %, test loss 1.25, 5 client updates/s, 3 min 16 s left\n"
    )


def test_a_log_without_evaluations_has_a_line_every_ten_seconds() -> None:
    console, file = log()
    clock = Clock()
    with Progress([("federated", 100)], console, HEADLINES, clock) as progress:
        for round in range(1, 31):
            clock.now = float(round)
            progress.add(RoundDone("federated", round, round, 2.5, 10, 100, Traffic(), float(round)))
    starts = [line.split(":")[0] for line in file.getvalue().splitlines()]
    assert starts == [f"federated {round}/100 (round {round} of 100)" for round in (10, 20, 30)]
    assert "training loss 2.5, 10 client updates/s, 1 min 30 s left" in file.getvalue()


def test_a_remark_on_a_score_and_a_missing_loss() -> None:
    console, file = log()
    with Progress(PHASES, console, HEADLINES, Clock()) as progress:
        progress.add(done("cyclic", 2, 4.0))
        scored = replace(
            evaluated("cyclic", 2, math.nan, 0.5, 100), remarks=("spread 0.01: the outputs have collapsed",)
        )
        progress.add(scored)
    line, remark = file.getvalue().splitlines()
    assert line.startswith("cyclic 2/2 (round 2 of 100): test accuracy 50.00 %, ")
    assert "loss" not in line
    assert remark == "round 2: spread 0.01: the outputs have collapsed"


def test_pace_is_that_of_the_present_phase() -> None:
    console, file = log()
    with Progress(PHASES, console, HEADLINES, Clock()) as progress:
        progress.add(done("cyclic", 1, 50.0))
        progress.add(done("cyclic", 2, 100.0))
        progress.add(done("federated", 3, 101.0, updates=30))
        progress.add(evaluated("federated", 3, 1.0, 0.5, 100))
    assert "30 client updates/s, 1 min 37 s left" in file.getvalue()


def test_an_evaluation_that_comes_late_stands_with_the_round_it_is_of() -> None:
    console, file = log()
    with Progress(PHASES, console, HEADLINES, Clock()) as progress:
        for event in (done("cyclic", 1, 1.0), done("cyclic", 2, 2.0), done("federated", 3, 3.0)):
            progress.add(event)
        progress.add(evaluated("cyclic", 2, 1.0, 0.5, 100))
    assert file.getvalue().startswith("cyclic 2/2 (round 2 of 100)")


def test_lines_of_a_log_never_go_back_to_an_earlier_round() -> None:
    console, file = log()
    clock = Clock()
    with Progress([("federated", 8)], console, HEADLINES, clock) as progress:
        for round in range(1, 5):
            clock.now += 4.0
            progress.add(RoundDone("federated", round, round, 2.5, 10, 100, Traffic(), clock.now))
        progress.add(evaluated("federated", 2, 1.5, 0.25, 100))
        progress.add(evaluated("federated", 4, 1.0, 0.5, 100))
    tail = "2.5 client updates/s, 16 s left"
    assert file.getvalue().splitlines() == [
        "federated 3/8 (round 3 of 8): training loss 2.5, 2.5 client updates/s, 20 s left",
        f"federated 3/8 (round 3 of 8): after round 2: test accuracy 25.00 %, test loss 1.5, {tail}",
        f"federated 4/8 (round 4 of 8): test accuracy 50.00 %, test loss 1, {tail}",
    ]


def test_waiting_names_the_outstanding_client_updates_and_counts_the_rest() -> None:
    console, file = log()
    outstanding = tuple(f"client {client} on host {client % 2}" for client in range(8))
    with Progress(PHASES, console, HEADLINES, Clock()) as progress:
        progress.add(Waiting("cyclic", 1, 61.0, outstanding))
    text = file.getvalue()
    assert text.startswith("warning: no answer for 1 min 1 s in cyclic 1/2; still waiting for client 0 on host 0,")
    assert text.endswith("client 4 on host 0 and 3 more\n")


def test_a_cluster_that_grows_and_shrinks_is_told_by_its_workers() -> None:
    console, file = log()
    with Progress(PHASES, console, HEADLINES, Clock()) as progress:
        progress.add(HostsChanged("federated", 7, 1, 3))
        progress.add(HostsChanged("federated", 9, 3, 1))
    assert file.getvalue().splitlines() == [
        "the cluster has grown: 3 workers after round 7, 1 before",
        "the cluster has shrunk: 1 worker after round 9, 3 before",
    ]


def test_brackets_in_names_are_shown_as_they_are() -> None:
    for console, file in (log(), terminal()):
        with Progress([("[bold]warm", 3)], console, HEADLINES, Clock()) as progress:
            progress.add(RoundDone("[bold]warm", 1, 1, 2.5, 10, 100, Traffic(), 1.0))
            progress.add(evaluated("[bold]warm", 1, 1.0, 0.5, 100))
        assert "[bold]warm 1/3" in file.getvalue()


def test_a_terminal_shows_a_bar_with_phase_round_accuracy_pace_and_time_left() -> None:
    console, file = terminal()
    with Progress(PHASES, console, HEADLINES, Clock()) as progress:
        progress.add(done("cyclic", 1, 2.0))
        progress.add(done("cyclic", 2, 4.0))
        progress.add(evaluated("cyclic", 2, 1.25, 0.5, 100))
        progress.add(Waiting("federated", 3, 60.0, ("client 7 on host 1",)))
    text = file.getvalue()
    assert "no answer for 1 min 0 s in federated 1/98; still waiting for client 7 on host 1" in text
    last = text[text.rindex("cyclic 2/2") :]
    for part in ("accuracy 50.00 %", "5 client updates/s", "3 min 16 s left"):
        assert part in last
