"""Runs that are requested repeatedly (cells of grids, starts) continue in their folders if possible."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

from rayfl.checkpoint.checkpoints import Checkpoints
from rayfl.errors import CheckpointError, ResourceError, ScenarioError
from rayfl.lifecycle.run_lock import release_stale
from rayfl.privacy.release_ledger import LEDGER_FILE
from rayfl.report.folder import CHECKPOINTS, SCENARIO_FILE
from rayfl.report.recorded_metrics import read_rows
from rayfl.report.status import mark_lost, readable_status

How = Literal["begin", "resume"]


def run_in_place(
    folder: Path, same: bool, run: Callable[[How], None], clear: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Resumes the run in a folder from its last checkpoint, or begins it if that is impossible. A finished run is done.

    Args:
        folder: The run's folder; the caller holds a lock that excludes its own kind on every machine.
        same: Whether an existing run in the folder is of the same scenario.
        run: Begins or resumes the run.
        clear: Removes the files of a previous run from the folder.
        say: Receives the reason if a run that had begun has to start over.

    Raises:
        HeldError: Another process on this machine, such as `rayfl resume`, works in the folder.
    """
    release_stale(folder)
    charged = (folder / LEDGER_FILE).exists()
    begun = same and (folder / SCENARIO_FILE).exists()
    if begun and _is_done(folder, say):
        return  # killed before the caller noted it
    if not begun or not (charged or Checkpoints(folder, 1).any()):
        if begun:
            say("the run starts over: it was stopped before its first checkpoint")
        clear()
        run("begin")
        return
    mark_lost(folder)
    try:
        run("resume")
    except CheckpointError as error:
        say(f"the run starts over: {error}")
        if charged:  # its releases stay charged
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            run("resume")
            return
        clear()
        run("begin")
    except ScenarioError as error:  # the caller has checked the scenario, so the existing run differs from it
        say(f"the run starts over: {error}")
        clear()
        run("begin")


def _is_done(folder: Path, say: Callable[[str], None]) -> bool:
    """Whether a run finished and left its records."""
    status = readable_status(folder, say)
    try:
        return status is not None and status["status"] == "finished" and bool(read_rows(folder))
    except ResourceError as error:
        say(str(error))
        return False


def move_aside(folder: Path, but: str = "") -> None:
    """Makes way for a new run: moves what a folder holds to `<folder>-stopped-<n>`, with the first free number.

    Args:
        folder: The folder; nothing happens if it does not exist.
        but: The name of a file that stays.

    Raises:
        ResourceError: Something cannot be moved.
    """
    if not folder.exists():
        return
    with making_way(folder):
        for number in count(1):
            aside = folder.with_name(f"{folder.name}-stopped-{number}")
            try:
                aside.mkdir()
            except FileExistsError:
                continue
            for path in folder.iterdir():
                if path.name != but:
                    path.rename(aside / path.name)
            return


@contextmanager
def making_way(folder: Path) -> Iterator[None]:
    """Reports errors of a block that clears a folder for a new run as one that says what to do."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"'{error.filename or folder}' cannot be removed to make way for a new run ({error.strerror or error}); "
            "end the program that writes there, or move it yourself"
        ) from None
