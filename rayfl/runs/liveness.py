"""Checks from the folder of a run whether its process is still alive."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

BEATS_EVERY_S = 30.0

STATUS_SILENT_S = 300.0
"""A run on another machine counts as lost after this long without a heartbeat of its status.json."""

_CLOCK_MAY_SHIFT_S = 10.0


def this_process() -> dict[str, Any]:
    """Identifies this process: its machine, its pid there, and when it began.

    Containers may share the name of their machine, so `boot` (the kernel's id of this boot) and `pids` (the namespace
    in which the pid counts) tell them apart; both are missing on systems without /proc.
    """
    process = psutil.Process()
    return {"host": platform.node(), "pid": process.pid, "began": process.create_time(), **_kernel()}


def _kernel() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    with suppress(OSError):
        facts["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with suppress(OSError):
        facts["pids"] = Path("/proc/self/ns/pid").stat().st_ino
    return facts


class Heartbeat:
    """Updates the modification time of a file while this process lives, or until it is stopped.

    Args:
        path: The file; removing it ends the heartbeat.
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
        """Ends it; does nothing the second time."""
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(BEATS_EVERY_S):
            try:
                os.utime(self._path)
            except FileNotFoundError:
                return
            except OSError:  # shared storage may be unavailable for a moment
                continue


def is_elsewhere(process: Mapping[str, Any]) -> bool:
    """Whether this machine's process table does not list a process: of another machine, boot or container."""
    here = _kernel()
    return bool(process["host"] != platform.node()) or any(process.get(key, here[key]) != here[key] for key in here)


def is_gone(process: Mapping[str, Any], beats: Path, silent_s: float = STATUS_SILENT_S) -> bool:
    """Whether a process has ended.

    On its own machine the process table decides; elsewhere the heartbeat. Of records that do not name boot and
    namespace, the heartbeat also decides if another process has the pid: it may be that of another container.

    Args:
        process: As `this_process` described it.
        beats: The file that its heartbeat updates.
        silent_s: Seconds without a heartbeat after which it counts as dead.
    """
    if not is_elsewhere(process):
        try:
            current = psutil.Process(process["pid"])
            zombie, began = bool(current.status() == psutil.STATUS_ZOMBIE), float(current.create_time())
        except psutil.NoSuchProcess:
            return True
        if zombie or abs(began - process["began"]) < _CLOCK_MAY_SHIFT_S:
            return zombie
        if "boot" in process and "pids" in process:
            return True
    return time.time() - beats.stat().st_mtime > silent_s
