"""Writes Ray's own messages to a file instead of the terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rayfl.backends.ray.private import message_printer, output_printers, print_messages_with, print_output_with

NAME = "ray.log"
"""Name of the file in a run's folder."""

HELD_LINES = 10_000
"""How many lines are held at most while they cannot be written."""

AUTOSCALER = "autoscaler"


class RayLog:
    """The file that receives Ray's messages, created with the first one.

    Args:
        path: The file; without one, messages are held until `begin` names it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._held: list[str] = []
        self._lock = threading.Lock()

    def begin(self, path: Path | None) -> None:
        """Names the file and writes the held messages to it."""
        with self._lock:
            self.path = path
            self._append([])

    def write(self, text: str, origin: str = "ray") -> None:
        """Appends text, each line with the time and its origin. Called from Ray's threads.

        Raises nothing if the file cannot be written, since an error may be under way: the lines are held for later.
        """
        prefix = f"{datetime.now():%H:%M:%S} ({origin}) "
        lines = [prefix + line for line in text.splitlines() if line.strip()]
        if lines:
            with self._lock:
                self._append(lines)

    def _append(self, lines: list[str]) -> None:
        self._held = [*self._held, *lines][-HELD_LINES:]
        if self.path is not None and self._held:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("\n".join(self._held) + "\n")
            except OSError:  # the disk is full, or the folder of a finished run was removed
                return
            self._held = []

    def take(self, data: Mapping[str, Any]) -> None:
        """Appends a batch of lines in Ray's form.

        Skips the autoscaler, which reports every five seconds; Ray itself shows only a few of its events.
        """
        if data["pid"] == AUTOSCALER:
            return
        name = data.get("actor_name") or data.get("task_name") or ""
        origin = f"{name} pid={data['pid']} ip={data['ip']}".strip() if "ip" in data else str(data["pid"])
        self.write("\n".join(data["lines"]), origin)


class _Redirection:
    """Redirects Ray's output on the driver's terminal to the logs of the active runs.

    Ray has no setting for this: `log_to_driver=False` also silences the workers' own prints, but not the raylet's
    messages. So this replaces the two functions with which Ray prints, as long as there is a log. Runs in several
    threads may share a connection, and begin and end in any order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: list[RayLog] = []
        self._shows: list[Any] = []
        self._print: Any = None

    def add(self, log: RayLog) -> None:
        with self._lock:
            self._logs = [*self._logs, log]
            if len(self._logs) == 1:
                self._shows, self._print = output_printers(), message_printer()
                if self._shows:
                    print_output_with([self._take_output])
                print_messages_with(self._take_message)

    def remove(self, log: RayLog) -> None:
        with self._lock:
            self._logs = [other for other in self._logs if other is not log]
            if not self._logs:
                print_messages_with(self._print)
                if self._shows:
                    print_output_with(self._shows)

    def _take_output(self, data: Mapping[str, Any]) -> None:
        logs = self._logs
        for log in logs:
            log.take(data)
        if logs and not data["is_err"] and isinstance(data["pid"], int):
            for show in self._shows:
                show(data)

    def _take_message(self, data: Mapping[str, Any], ignore_prefix: bool) -> None:
        for log in self._logs:
            log.take(data)


_REDIRECTION = _Redirection()


@contextmanager
def ray_text_in(log: RayLog) -> Iterator[None]:
    """Redirects Ray's output on the driver's terminal to a file during the block.

    The workers' stdout is shown on the terminal too, if the connection shows it.
    """
    _REDIRECTION.add(log)
    try:
        yield
    finally:
        _REDIRECTION.remove(log)
