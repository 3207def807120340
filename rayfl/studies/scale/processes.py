"""Memory and processor time of a run's processes by role, from Linux's /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ACTORS = {"ray::HostActor": "workers", "ray::ServerActor": "server", "ray::SchedulerActor": "scheduler"}
DRIVER, RAY = "driver", "Ray"
ROLES = (DRIVER, *ACTORS.values(), RAY)


def roles() -> dict[int, str]:
    """The role of this process and of each of its descendants, by process id. Ray titles actors by class."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            fields = _read(folder / "stat").rpartition(")")[2].split()
            if len(fields) > 1:
                parents[int(folder.name)] = int(fields[1])
    found, front = {os.getpid(): DRIVER}, {os.getpid()}
    while front := {pid for pid, parent in parents.items() if parent in front}:
        for pid in front:
            title = _read(Path(f"/proc/{pid}/cmdline"))
            found[pid] = next((role for actor, role in ACTORS.items() if title.startswith(actor)), RAY)
    return found


def memory() -> dict[str, int]:
    """Proportional set size by role, in bytes: a page that several processes map counts in parts."""
    sizes = dict.fromkeys(ROLES, 0)
    for pid, role in roles().items():
        for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                sizes[role] += 1024 * int(line.split()[1])
    return sizes


def processor_seconds() -> dict[str, float]:
    """Processor time so far by role."""
    seconds = dict.fromkeys(ROLES, 0.0)
    for pid, role in roles().items():
        # utime and stime are fields 14 and 15; field 2 may contain spaces and ends with a bracket
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        if len(fields) > 12:
            seconds[role] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


@contextmanager
def peak_memory(every_s: float = 0.2) -> Iterator[dict[str, int]]:
    """Samples `memory` in a thread; the largest sums of all roles are in the dictionary by the end of the block."""
    peak, over = dict[str, int](), threading.Event()

    def sample() -> None:
        while True:
            now = memory()
            if sum(now.values()) > sum(peak.values()):
                peak.clear()
                peak.update(now)
            if over.wait(every_s):
                return

    thread = threading.Thread(target=sample, name="rayfl scale")
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _read(path: Path) -> str:
    """A file of /proc; empty if the process has ended."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
