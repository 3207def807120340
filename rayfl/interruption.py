"""SIGTERM, which job schedulers and container runtimes send, ends a run as Ctrl-C does, with Ray or without."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raises Terminated when SIGTERM arrives within the block.

    A handler that the program has set stays in place; Ray's, which would exit at once, is replaced. Python delivers
    signals only to the main thread, so in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread() or not _is_replaceable(_current()):
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def sigterm_handler_kept() -> Iterator[None]:
    """Restores the program's SIGTERM handler after the block; for `ray.init`, which replaces it.

    If the program has none, Ray's stays: it exits, and so stops what Ray has started.
    """
    before = _current()
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _current() -> Any:
    return signal.getsignal(signal.SIGTERM)


def _is_replaceable(handler: Any) -> bool:
    package = str(getattr(handler, "__module__", "")).partition(".")[0]
    return handler == signal.SIG_DFL or package in ("ray", "rayfl")


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
