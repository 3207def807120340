"""Whether the process that carries a run out is still there, for whoever reads the run's folder."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

BEATS_EVERY_S = 30.0

SILENT_S = 300.0
"""After so long without a beat, a process on another machine is taken for dead."""

_CLOCK_MAY_SHIFT_S = 10.0


def this_process() -> dict[str, Any]:
    """What a process is recognised by: its host, its number there, and when it began."""
    process = psutil.Process()
    return {"host": platform.node(), "pid": process.pid, "began": process.create_time()}


class Heartbeat:
    """Renews the time of a file as long as this process lives, or until it is stopped.

    Args:
        path: The file; once it is gone, so is the heartbeat.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rayfl heartbeat", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends it. Stopping twice is stopping once."""
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(BEATS_EVERY_S):
            try:
                os.utime(self._path)
            except FileNotFoundError:
                return
            except OSError:  # shared storage may be away for a moment
                continue


def is_gone(process: Mapping[str, Any], beats: Path) -> bool:
    """Whether a process has ended.

    On its own host the process table says so; elsewhere, or if its number belongs to another by now, the heartbeat.

    Args:
        process: As `this_process` described it.
        beats: The file that its heartbeat renews.
    """
    if process["host"] == platform.node():
        try:
            found = psutil.Process(process["pid"])
            zombie, began = bool(found.status() == psutil.STATUS_ZOMBIE), float(found.create_time())
        except psutil.NoSuchProcess:
            return True
        if zombie or abs(began - process["began"]) < _CLOCK_MAY_SHIFT_S:
            return bool(zombie)
    return time.time() - beats.stat().st_mtime > SILENT_S
