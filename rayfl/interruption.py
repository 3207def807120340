"""SIGTERM (from job schedulers and containers) and SIGHUP (a lost terminal) end a run like Ctrl-C, also on Ray.

So does SIGALRM, with which a program ends its own run after some minutes.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rayfl.errors import ScenarioError


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


class HungUp(Terminated):
    """The process received SIGHUP: its terminal was closed, or the connection to it lost."""


class TimeOver(Terminated):
    """The process received SIGALRM: the minutes that a run was given are over."""


class StopRequested(KeyboardInterrupt):
    """A submitted run was stopped before its first round."""


class StopRequest:
    """A request to stop a run, which another thread may make at any time, before the run begins or while it runs.

    Args:
        who: Who makes it, for the records.
    """

    def __init__(self, who: str) -> None:
        self._who, self._made = who, threading.Event()
        self._stop: Callable[[str, str], None] | None = None

    def make(self) -> None:
        """Makes the request."""
        self._made.set()
        if self._stop is not None:
            self._stop(self._who, "asked to stop")

    def check(self) -> None:
        """Raises StopRequested if the request was made."""
        if self._made.is_set():
            raise StopRequested

    def pass_to(self, stop: Callable[[str, str], None]) -> None:
        """Passes the request on to a run that has begun, now or when it is made.

        Args:
            stop: Called with who makes it and the reason, sometimes twice.
        """
        self._stop = stop
        if self._made.is_set():
            self.make()


def is_interrupt(error: BaseException) -> bool:
    """Whether the run was interrupted on purpose, as opposed to a failure."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def is_of_user_code(error: BaseException) -> bool:
    """Whether an exception in a call of user code is that code's own, rather than Ctrl-C or the end of a generator.

    Nothing interrupts a process without a block of `interruptible`, such as a worker process on Ray: there, even a
    KeyboardInterrupt is the code's own.
    """
    return not isinstance(error, GeneratorExit) and not (isinstance(error, KeyboardInterrupt) and _BLOCKS)


_BLOCKS: list[Interrupts] = []
"""The blocks of `interruptible` that this process is in."""

EXCEPTIONS = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
    signal.SIGHUP: HungUp,
    signal.SIGALRM: TimeOver,
}


class Interrupts:
    """The signals that arrived within a block of `interruptible`."""

    def __init__(self) -> None:
        self._last: signal.Signals | None = None
        self._raised = False
        self._at_first: Callable[[], None] | None = None

    def check(self) -> None:
        """Raises the exception of a signal again: the library that was running then may have swallowed it."""
        if self._raised:
            self.raise_last()

    def raise_last(self) -> None:
        """Raises the last signal's exception, again if it was raised before; does nothing if there was no signal."""
        if self._last is not None:
            raise EXCEPTIONS[self._last]

    @contextmanager
    def second_raises(self, at_first: Callable[[], None]) -> Iterator[None]:
        """Within the block, the first signal is not raised, but the second one is.

        SIGHUP is never one of the two, and SIGALRM never the second.

        Args:
            at_first: Called at the first signal. The main thread may be anywhere, so it should do little more than
                record the signal.
        """
        self._at_first = at_first
        try:
            yield
        finally:
            self._at_first = None

    def cause_of(self, error: BaseException) -> BaseException:
        """The exception behind an error: Ray replaces exceptions from signal handlers by a plain KeyboardInterrupt."""
        if self._last is None or not isinstance(error, KeyboardInterrupt):
            return error
        return EXCEPTIONS[self._last]()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        received, before = signal.Signals(number), self._last
        if received == signal.SIGHUP:
            _leave_lost_terminal()
        if before is not None and received == signal.SIGALRM:
            return  # the run ends already
        # nobody asks twice with a SIGHUP: a kernel, a shell and systemd send it beside another one, or beside SIGTERM
        if before is not None and signal.SIGHUP in (received, before):
            self._last = before if received == signal.SIGHUP else received
            return
        self._last = received
        if before is None and self._at_first is not None:
            self._at_first()
            return
        self._raised = True
        raise EXCEPTIONS[self._last]


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Raises KeyboardInterrupt when SIGINT (Ctrl-C) arrives within the block; see `EXCEPTIONS` for other signals.

    A handler that the program has set stays in place, and a signal that it ignores stays ignored (SIGHUP under
    `nohup`); the handler of Ray, which would exit at once, is replaced. Python delivers signals only to the main
    thread, so in any other thread this does nothing.
    """
    interrupts, replaced = Interrupts(), dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in EXCEPTIONS}
        replaced = {number: handler for number, handler in before.items() if _is_replaceable(handler)}
    for number in replaced:
        signal.signal(number, interrupts._raise)
    _BLOCKS.append(interrupts)
    try:
        yield interrupts
    finally:
        _BLOCKS.remove(interrupts)
        for number, handler in replaced.items():
            signal.signal(number, handler)


@contextmanager
def time_limit(minutes: float | None) -> Iterator[None]:
    """Ends what runs in the block after some minutes, as SIGTERM would; see `interruptible`.

    Args:
        minutes: How many; None for no limit.

    Raises:
        ScenarioError: This is not the main thread, or the program uses SIGALRM itself.
    """
    if minutes is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise ScenarioError("minutes: only works in the main thread of a program, which alone receives signals")
    if signal.getitimer(signal.ITIMER_REAL)[0] or not _is_replaceable(signal.getsignal(signal.SIGALRM)):
        raise ScenarioError("minutes: this program uses SIGALRM itself, so it must end the run in another way")
    with interruptible():
        signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def handlers_installed_again() -> None:
    """Reinstalls Python's signal handlers, in case a library in another thread has put its own in front of them.

    Ray's handler prints a stack trace before it passes the signal on. Only has an effect in the main thread.
    """
    if threading.current_thread() is threading.main_thread():
        for number in EXCEPTIONS:
            signal.signal(number, signal.getsignal(number))


@contextmanager
def hangup_blocked() -> Iterator[None]:
    """Blocks SIGHUP in this thread; for `ray.init`, whose processes inherit that.

    They share the program's terminal. After it is lost, a run needs them for its last round and checkpoint.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def sigterm_handler_kept() -> Iterator[None]:
    """Restores the program's SIGTERM handler after the block; for `ray.init`, which replaces it.

    If the program has none, the handler of Ray stays: it exits, which stops everything that Ray has started.
    """
    before: Any = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before not in (signal.SIG_DFL, None) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _leave_lost_terminal() -> None:
    """Discards what is printed from now on if the terminal is lost, where printing would raise an error."""
    with Path(os.devnull).open("w") as nowhere:
        for descriptor in (1, 2):
            try:
                os.tcgetpgrp(descriptor)
            except OSError as error:
                if error.errno == errno.EIO:
                    os.dup2(nowhere.fileno(), descriptor)


def _is_replaceable(handler: Any) -> bool:
    package = str(getattr(handler, "__module__", "")).partition(".")[0]
    return handler in (signal.SIG_DFL, signal.default_int_handler) or package in ("ray", "rayfl")
