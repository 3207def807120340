"""Runs that somebody else asks for, again and again (cells, starts), go on in their folders where they can."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rayfl.checkpoint.checkpoints import Checkpoints
from rayfl.errors import CheckpointError, ScenarioError
from rayfl.privacy.release_ledger import LEDGER_FILE
from rayfl.report.folder import CHECKPOINTS
from rayfl.report.status import take_for_lost

How = Literal["begin", "resume"]


def run_in_place(
    folder: Path, same: bool, run: Callable[[How], None], clear: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Goes on with the run in a folder, from its last checkpoint, or begins it where nothing can be gone on from.

    Args:
        folder: The run's own. Nobody else runs anything there: the caller holds a lock.
        same: Whether what is there, if anything, is a run of the same scenario.
        run: Runs it.
        clear: Removes from the folder what another run has left.
        say: Told why a run begins again that had got somewhere.
    """
    charged = (folder / LEDGER_FILE).exists()
    begun = same and (folder / "scenario.toml").exists()
    if not begun or not (charged or Checkpoints(folder, 1).any()):
        if begun:
            say("the run begins again: it was stopped before its first checkpoint")
        clear()
        run("begin")
        return
    take_for_lost(folder)
    try:
        run("resume")
    except CheckpointError as error:
        say(f"the run begins again: {error}")
        if charged:  # what it has released stays charged
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            run("resume")
            return
        clear()
        run("begin")
    except ScenarioError as error:  # the caller has checked it, so it, or its data, is not that of what has begun
        say(f"the run begins again: {error}")
        clear()
        run("begin")
