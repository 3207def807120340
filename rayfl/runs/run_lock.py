"""Locks a run's folder, so that only one process at a time writes to it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from rayfl.errors import ResourceError
from rayfl.runs.liveness import Heartbeat, is_elsewhere, is_gone, this_process
from rayfl.runs.status import mark_lost

LOCK = ".run-lock"
"""The file in the run's folder: the holder as JSON, with its heartbeat as the time of modification."""

LOCK_SILENT_S = 120.0
"""The lock of a process on another machine is stale after this long without a heartbeat."""


class HeldError(ResourceError):
    """Another process works in the folder, so nothing may be written there, not even a failure."""


@contextmanager
def run_lock(folder: Path, where: str = "") -> Iterator[Callable[[], None]]:
    """Holds the lock of a run's folder within the block; creates the folder if it is missing.

    Takes over the lock of a process that has died, and marks its run as lost.

    Args:
        folder: The run's folder.
        where: The run's location, for messages, if it is not the folder.

    Yields:
        Checks that the lock was not taken over meanwhile, which raises a HeldError: a process that was stopped for long
        looks dead from elsewhere.

    Raises:
        HeldError: Another process holds the lock.
        ResourceError: The folder cannot be written.
    """
    path = folder / LOCK
    own: dict[str, Any] = {**this_process(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _exclusively(path) as file:
            before = _read(file)
            if before is not None and not is_gone(before, path, LOCK_SILENT_S):
                raise _held(before, where or folder)
            own["inode"] = os.fstat(file.fileno()).st_ino
            file.truncate(0)
            file.write(json.dumps(own))
            file.flush()
        if before is not None:
            mark_lost(folder)
    except OSError as error:
        raise ResourceError(f"cannot lock '{path}': {error.strerror or error}") from None
    beats = Heartbeat(path)
    try:
        yield lambda: _check_holds(path, own, where or folder)
    finally:
        beats.stop()
        with suppress(OSError):  # the folder may have been removed
            if path.exists():
                with _exclusively(path) as file:
                    if _read(file) == own:
                        path.unlink()


def is_held(folder: Path) -> bool:
    """Whether a process that may be alive works in a run's folder; see `LOCK_SILENT_S`."""
    path = folder / LOCK
    if not path.exists():
        return False
    with _exclusively(path) as file:
        holder = _read(file)
        return holder is not None and not is_gone(holder, path, LOCK_SILENT_S)


def _check_holds(path: Path, own: dict[str, Any], where: object) -> None:
    try:
        with path.open(encoding="utf-8") as file:
            holder = _read(file)
    except OSError:  # the folder was removed, or its storage is unavailable for a moment
        return
    if holder is not None and holder != own:
        raise HeldError(
            f"process {holder['pid']} on {holder['host']} has taken over the run in '{where}' since "
            f"{holder.get('since')}, when this process seemed dead; this one ends and leaves the records to it"
        )


def release_stale(folder: Path) -> None:
    """Removes the lock of a dead process, or from another machine, for callers that know that nothing runs there.

    Raises:
        HeldError: A process on this machine holds the lock.
    """
    path = folder / LOCK
    if not path.exists():
        return
    with _exclusively(path) as file:
        holder = _read(file)
        if holder is not None and not is_elsewhere(holder) and not is_gone(holder, path, LOCK_SILENT_S):
            raise _held(holder, folder)
        path.unlink()


@contextmanager
def _exclusively(path: Path) -> Iterator[IO[str]]:
    """The lock's file, which no other process reads or replaces within the block."""
    while True:
        with path.open("a+", encoding="utf-8") as file:
            with suppress(OSError):  # file systems without flock: two that take over at the same instant may both run
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(file, path):
                yield file
                return


def _is_still(file: IO[str], path: Path) -> bool:
    """Whether the holder has not just removed an open lock."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _read(file: IO[str]) -> dict[str, Any] | None:
    """The holder; None if there is none, if a crash damaged the file, or if the folder is a copy of the holder's."""
    file.seek(0)
    try:
        content = json.loads(file.read())
        holder = {**content, "host": str(content["host"]), "pid": int(content["pid"]), "began": float(content["began"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    inode = os.fstat(file.fileno()).st_ino
    return holder if is_elsewhere(holder) or content.get("inode", inode) == inode else None


def _held(holder: dict[str, Any], where: object) -> HeldError:
    return HeldError(
        f"the run in '{where}' is still active: process {holder['pid']} on {holder['host']} has held its folder since "
        f"{holder.get('since')}; wait until it ends, or stop it"
    )
