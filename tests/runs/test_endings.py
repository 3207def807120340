"""Ends of runs: files after a failure or interruption; a failing picture never fails a run."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import rayfl
from rayfl.backends.inline import InlineSession
from rayfl.engine.events import Event, RoundDone
from rayfl.errors import ClientError, ResourceError, ScenarioError
from rayfl.interruption import EXCEPTIONS, HungUp, Terminated, interruptible, time_limit
from rayfl.runs.records import Records
from rayfl.runs.result import Result

PHASE: dict[str, Any] = {"name": "federated", "rounds": 6, "cohort": 2, "local": {"lr": 0.5, "batch_size": 8}}


def tables(**more: Any) -> dict[str, Any]:
    data = {"name": "tests.user_code:vectors", "clients": 4}
    return {"name": "tiny", "data": data, "model": "tests.user_code:Linear", "phases": [PHASE], **more}


def run(out: Path, console: Console | None = None, **more: Any) -> Result:
    return rayfl.run(tables(**more), backend="inline", folder=out / "run", console=console or Console(quiet=True))


def status_in(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "run" / "status.json").read_text())
    return content


def ends_after(rounds: int, end: Callable[[], None]) -> Callable[[InlineSession], Iterator[Event]]:
    """Session.events that calls `end` after the given number of committed and reported rounds."""
    events = InlineSession.events

    def cut_short(self: InlineSession) -> Iterator[Event]:
        for event in events(self):
            yield event
            if isinstance(event, RoundDone) and event.round == rounds:
                end()

    return cut_short


def press_ctrl_c() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise ClientError(3, 0, "federated", 4, "its code raised\nTraceback (most recent call last):\n  a\nKeyError: 'x'")


def test_a_run_that_comes_to_its_end_says_so(tmp_path: Path) -> None:
    run(tmp_path)
    status = status_in(tmp_path)
    assert (status["status"], status["reason"], status["diverged"]) == ("finished", None, False)
    assert (status["rounds"], status["committed_rounds"]) == (6, 6)
    assert status["model"] == {"file": "model.safetensors", "round": 6}
    assert status["started"] <= status["ended"]


def test_a_run_under_way_says_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(InlineSession, "events", ends_after(2, lambda: seen.append(status_in(tmp_path))))
    run(tmp_path)
    assert (seen[0]["status"], seen[0]["ended"], seen[0]["model"]) == ("running", None, None)


SCAFFOLD = {**PHASE, "algorithm": "scaffold"}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of four rounds."""
    return run(tmp_path_factory.mktemp("four"), phases=[{**SCAFFOLD, "rounds": 4}])


@pytest.mark.parametrize(
    ("end", "error", "expected", "reason"),
    [
        (press_ctrl_c, KeyboardInterrupt, "interrupted", "Ctrl-C"),
        (lambda: signal.raise_signal(signal.SIGTERM), Terminated, "interrupted", "SIGTERM"),
        (lambda: signal.raise_signal(signal.SIGHUP), Terminated, "interrupted", "SIGHUP"),
        (
            fail,
            ClientError,
            "failed",
            "client 3 on worker 0, phase 'federated', round 4: its code raised: KeyError: 'x'",
        ),
    ],
)
def test_a_run_that_ends_early_leaves_the_last_committed_model_and_its_metrics(
    end: Callable[[], None],
    error: type[BaseException],
    expected: str,
    reason: str,
    four: Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SCAFFOLD's clients keep state, so a round begins only after the previous one is committed."""
    monkeypatch.setattr(InlineSession, "events", ends_after(4, end))
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(error):
        run(tmp_path, phases=[SCAFFOLD])
    assert signal.getsignal(signal.SIGTERM) == handler
    status = status_in(tmp_path)
    assert (status["status"], status["reason"]) == (expected, reason)
    assert (status["committed_rounds"], status["model"]["round"], status["model_missing"]) == (4, 4, None)
    left = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(left[name], value) for name, value in four.state_dict.items())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["round"] == 1


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_an_interrupt_that_a_library_swallows_ends_the_run_all_the_same(
    number: signal.Signals, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pydantic does: its serializers turn any exception into a warning."""
    before = signal.signal(number, {signal.SIGINT: signal.default_int_handler}.get(number, signal.SIG_DFL))

    def swallowed() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)

    monkeypatch.setattr(InlineSession, "events", ends_after(2, swallowed))
    try:
        with pytest.raises(error):
            run(tmp_path)
    finally:
        signal.signal(number, before)  # a job in the background ignores SIGINT
    assert status_in(tmp_path)["status"] == "interrupted"


def test_sigterm_is_named_although_ray_turns_it_into_a_plain_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except Terminated:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(InlineSession, "events", ends_after(2, replaced))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert status_in(tmp_path)["reason"] == "SIGTERM"


def test_a_client_that_fails_in_the_first_round_leaves_no_model(tmp_path: Path) -> None:
    with pytest.raises(ClientError):
        run(tmp_path, model="tests.user_code:RaisesInTraining")
    status = status_in(tmp_path)
    assert (status["status"], status["model"], status["model_missing"]) == ("failed", None, None)
    assert status["reason"].endswith("its code raised: RuntimeError: the sensor is unplugged")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_divergence_is_told_apart_from_other_failures(tmp_path: Path) -> None:
    spoilt = {**PHASE, "cohort": {"explicit": [[2]]}, "local": {"lr": 3e38, "batch_size": 4, "epochs": 2}}
    with pytest.raises(ClientError, match="the loss is"):
        run(tmp_path, phases=[spoilt])
    assert (status_in(tmp_path)["status"], status_in(tmp_path)["diverged"]) == ("failed", True)


def test_a_server_that_died_is_said_where_the_model_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(self: InlineSession) -> tuple[int, np.ndarray]:
        raise ResourceError("the server died")

    console = Console(file=StringIO(), record=True, width=200)
    monkeypatch.setattr(InlineSession, "events", ends_after(2, fail))
    monkeypatch.setattr(InlineSession, "committed", dead)
    with pytest.raises(ClientError):
        run(tmp_path, console)
    status = status_in(tmp_path)
    assert (status["model"], status["model_missing"]) == (None, "the server died")
    assert (
        "the model of the last committed round could not be saved: the server died; records: " in console.export_text()
    )


def test_a_second_ctrl_c_while_the_model_is_saved_still_leaves_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InlineSession, "events", ends_after(2, fail))
    monkeypatch.setattr(InlineSession, "committed", lambda self: press_ctrl_c())
    with pytest.raises(ClientError):
        run(tmp_path)
    assert (status_in(tmp_path)["status"], status_in(tmp_path)["model_missing"]) == ("failed", "Ctrl-C")


def test_records_that_cannot_be_closed_still_leave_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=StringIO(), record=True, width=200)
    monkeypatch.setattr(InlineSession, "events", ends_after(2, fail))
    close = Records.close

    def full(self: Records) -> None:
        close(self)
        raise ResourceError("the disk is full")

    monkeypatch.setattr(Records, "close", full)
    with pytest.raises((ClientError, ResourceError)):
        run(tmp_path, console)
    assert (status_in(tmp_path)["status"], status_in(tmp_path)["model"]["round"]) == ("failed", 2)
    assert "warning: the records are incomplete: the disk is full" in console.export_text()


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rayfl.models.model_file.safetensors.torch.save_file", full)
    with pytest.raises(ResourceError) as caught:
        run(tmp_path)
    path = tmp_path / "run" / "model.safetensors"
    assert str(caught.value) == f"cannot write '{path}': No space left on device"
    assert status_in(tmp_path)["model_missing"] == str(caught.value)


@pytest.mark.parametrize(
    "failure",
    [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), ValueError("no such font\nParseException: at char 3")],
    ids=["disk", "matplotlib"],
)
def test_a_picture_that_cannot_be_drawn_is_a_warning_in_one_line(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise failure

    monkeypatch.setattr("rayfl.runs.figures.curves.draw_curves", fails)
    result = run(tmp_path, Console())
    assert result.metrics.num_rows == 6
    assert status_in(tmp_path)["status"] == "finished"
    assert (tmp_path / "run" / "model.safetensors").exists()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert line.startswith("warning: could not draw curves.png: ")
    assert "No space left on device" in line or "ParseException: at char 3" in line


@pytest.mark.usefixtures("pictures")
def test_a_title_that_is_no_formula_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    phase = {**PHASE, "name": "$y_{$", "rounds": 1}
    run(tmp_path, Console(), title="what is $x_{$ to $y$?", phases=[phase])
    assert (tmp_path / "run" / "curves.png").exists()
    assert "warning" not in capsys.readouterr().out


def test_all_records_have_the_mode_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        run(tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").iterdir()}
    assert set(modes.values()) == {0o640}, modes
    assert "model.safetensors" in modes


def test_inline_runs_in_two_threads_give_the_bits_of_runs_one_by_one(tmp_path: Path) -> None:
    """The network's dropout draws from the generator that all threads share."""
    phase = {**PHASE, "rounds": 3, "cohort": 4}
    people: dict[str, Any] = {"data": {"name": "tests.algorithms.scene:people"}, "phases": [phase]}
    people["model"] = {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3}
    alone = [run(tmp_path / f"alone-{seed}", **people, seed=seed) for seed in (1, 2)]
    together: dict[int, Result] = {}

    def in_a_thread(seed: int) -> None:
        together[seed] = run(tmp_path / f"together-{seed}", **people, seed=seed)

    threads = [threading.Thread(target=in_a_thread, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in zip((1, 2), alone, strict=True):
        for name, value in expected.state_dict.items():
            assert torch.equal(together[seed].state_dict[name], value)


def test_a_programs_own_handler_of_sigterm_stays() -> None:
    def own(*_: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        with interruptible():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_hangup_that_the_program_ignores_as_under_nohup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interrupts:
            signal.raise_signal(signal.SIGHUP)
            interrupts.raise_last()
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("pair", [(signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)])
@pytest.mark.parametrize("asks_again", [signal.SIGINT, signal.SIGTERM])
def test_a_hangup_beside_sigterm_asks_only_once_to_end_the_run(
    pair: tuple[signal.Signals, ...], asks_again: signal.Signals
) -> None:
    """systemd sends both with `SendSIGHUP=yes`."""
    asked: list[None] = []
    with interruptible() as interrupts:
        with interrupts.second_raises(lambda: asked.append(None)):
            for number in pair:
                signal.raise_signal(number)
            assert len(asked) == 1
            with pytest.raises(EXCEPTIONS[asks_again]):
                signal.raise_signal(asks_again)
        with pytest.raises(EXCEPTIONS[asks_again]):
            interrupts.check()


def test_minutes_that_are_over_do_not_hurry_a_run_that_ends_already_and_ctrl_c_does() -> None:
    asked: list[None] = []
    for first, second in ((signal.SIGTERM, signal.SIGALRM), (signal.SIGALRM, None)):
        with interruptible() as interrupts, interrupts.second_raises(lambda: asked.append(None)):
            signal.raise_signal(first)
            if second is not None:
                signal.raise_signal(second)
            assert type(interrupts.cause_of(KeyboardInterrupt())) is EXCEPTIONS[first]
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    assert len(asked) == 2


def test_a_time_limit_needs_the_main_thread_and_a_program_without_alarms() -> None:
    said: list[str] = []

    def limited() -> None:
        try:
            with time_limit(1):
                raise AssertionError
        except ScenarioError as error:
            said.append(str(error))

    thread = threading.Thread(target=limited)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        limited()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [text.partition(",")[0] for text in said] == [
        "minutes: only works in the main thread of a program",
        "minutes: this program uses SIGALRM itself",
    ]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_hangup_that_ends_the_run_at_once_is_not_followed_by_sigterm() -> None:
    """The model is being saved by then."""
    with interruptible() as interrupts:
        with pytest.raises(HungUp):
            signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        assert isinstance(interrupts.cause_of(KeyboardInterrupt()), Terminated)


def test_rays_handler_of_sigterm_is_replaced_and_put_back() -> None:
    def rays(*_: Any) -> None: ...

    rays.__module__ = "ray._private.worker"
    before = signal.signal(signal.SIGTERM, rays)
    try:
        with pytest.raises(Terminated), interruptible():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is rays
    finally:
        signal.signal(signal.SIGTERM, before)


def test_records_close_twice_like_once(tmp_path: Path) -> None:
    with Records.within(tmp_path) as records:
        records.close()
