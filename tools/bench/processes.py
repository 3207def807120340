"""Child processes, their memory and their processor time, from Linux's /proc."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path


def descendants() -> dict[int, str]:
    """Returns the command lines of all descendants of this process by process id. Ray titles actors by class."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = _status(folder.name, "PPid")
                commands[int(folder.name)] = (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
            except (FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
                continue
    found, front = set[int](), {os.getpid()}
    while front := {pid for pid, parent in parents.items() if parent in front}:
        found |= front
    return {pid: commands[pid] for pid in found if pid in commands}


def anonymous_bytes(pid: int | str) -> int:
    """Returns the private resident memory of a process, without files and shared memory such as Ray's objects."""
    return 1024 * _status(pid, "RssAnon")


def growth(run: Callable[[], object]) -> int:
    """Returns the peak growth of this process' resident memory during a call, in bytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that is kept would hide the growth
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present value
    before = _status("self", "VmHWM")
    run()
    return 1024 * (_status("self", "VmHWM") - before)


def _status(pid: int | str, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    raise ProcessLookupError(f"process {pid} has no {key} (it is ending)")
