"""Reopens a run's folder to continue from its latest intact checkpoint.

Runs that are requested repeatedly (cells of grids, starts) continue in their folders if possible, and otherwise
begin again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from rayfl.console import print_line, print_warning
from rayfl.engine.backend import BackendSession
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.state.state_store import DamagedStateError, StateStore
from rayfl.errors import CheckpointError, ResourceError, ScenarioError
from rayfl.privacy.release_ledger import LEDGER_FILE, ReleaseLedger
from rayfl.runs.archive import RunArchive
from rayfl.runs.changes import check_same_run
from rayfl.runs.checkpoints import Checkpoints, StoredCheckpoint
from rayfl.runs.folder import CHECKPOINTS, SCENARIO_FILE
from rayfl.runs.old_records import OldRecords
from rayfl.runs.records import Records
from rayfl.runs.run_lock import release_stale
from rayfl.runs.status import UNDER_WAY, mark_lost, readable_status
from rayfl.runs.working_folder import Mirror


@dataclass(frozen=True)
class Reopened:
    """A run that continues.

    Attributes:
        where: The run's folder or URI.
        records: The records in its folder.
        store: Holds the states of its checkpoints.
        checkpoints: The readable checkpoints, latest first; empty if the run starts over. At most one with `secure`
            noise, since later rounds in the records would not be repeated identically.
        ledger: The ledger of a run with `secure` noise.
        console: Prints the round after which the run continues, and why checkpoints cannot be used.
    """

    where: str
    records: Records
    store: StateStore
    checkpoints: Sequence[StoredCheckpoint]
    ledger: ReleaseLedger | None
    console: Console

    @property
    def state(self) -> Mapping[str, Any] | None:
        """The state of the run's records: that of the latest checkpoint, even if its snapshot is damaged."""
        return self.checkpoints[0].records if self.checkpoints else None

    def restore(self, session: BackendSession) -> None:
        """Restores the latest intact snapshot.

        Raises:
            ResourceError: All snapshots are damaged.
        """
        for checkpoint in self.checkpoints:
            try:
                session.restore(checkpoint.snapshot, self.store)
            except DamagedStateError as error:
                self._say(f"warning: the checkpoint of round {checkpoint.round} cannot be used: {error}")
                continue
            self._say(f"the run continues after round {checkpoint.round}")
            return
        if self.checkpoints:
            raise CheckpointError(f"no checkpoint in '{self.where}' is intact; run the scenario in another folder")

    def _say(self, text: str) -> None:
        print_line(self.console, text, style="yellow" if text.startswith("warning") else "")


def reopen(folder: Path, run_plan: RunPlan, console: Console, mirror: Mirror | None = None) -> Reopened:
    """Opens the records of a run that has ended, and finds its checkpoints.

    Args:
        folder: The run's folder.
        run_plan: The plan to continue.
        console: Prints why checkpoints cannot be used.
        mirror: Publishes the folder of a run at a URI.

    Raises:
        ScenarioError: The plan differs from that of the run.
        ResourceError: The run is still active, all of its checkpoints or its ledger are damaged, or a checkpoint is of
            another version's format.
    """
    where = str(mirror.remote if mirror else folder)

    def warn(text: str) -> None:
        print_warning(console, text)

    status = readable_status(folder, lambda damage: warn(f"{damage}; the run is resumed without it"))
    if status is not None and status["status"] in UNDER_WAY:
        raise ResourceError(f"the run in '{where}' is still active: resume it after it has ended")
    saved = Checkpoints(folder, run_plan.scenario.checkpoint.keep, mirror)
    readable: list[StoredCheckpoint] = []
    damaged: list[ResourceError] = []
    for checkpoint in saved.newest_first() if run_plan.scenario.repeatable else saved.newest_whole():
        if isinstance(checkpoint, StoredCheckpoint):
            readable.append(checkpoint)
        else:
            damaged.append(checkpoint)
            warn(str(checkpoint))
    if damaged and not readable:
        raise CheckpointError(f"no checkpoint in '{where}' is intact: {damaged[0]}")
    for warning in check_same_run(folder, run_plan, readable[0].records if readable else None, where):
        warn(warning)
    committed = max(
        int((status or {}).get("committed_rounds", 0)), readable[0].records["seen"]["done"] if readable else 0
    )
    ledger = None if run_plan.scenario.repeatable else ReleaseLedger.reopen(folder, committed)
    if ledger and readable and readable[0].snapshot.in_flight:
        raise CheckpointError(
            f"'{folder}' cannot continue from a checkpoint: with `secure` noise, updates in flight would be released "
            "twice but charged once; remove its checkpoints to start over, with everything charged so far"
        )
    if not readable:
        print_line(console, f"'{where}' has no checkpoint: the run starts over")
        OldRecords(folder).set_aside()
    try:
        saved.sweep()
    except ResourceError as error:
        warn(f"unused checkpoint files could not be removed: {error}")
    records = Records(folder, reopened=True) if readable else Records.within(folder)
    return Reopened(where, records, saved.store, readable, ledger, console)


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
        EarlierFormatError: The run that has begun there is of an earlier version.
    """
    release_stale(folder)
    charged = (folder / LEDGER_FILE).exists()
    begun = same and (folder / SCENARIO_FILE).exists()
    if begun and _is_done(folder, say):
        return  # killed before the caller noted it
    if begun:
        RunArchive(folder).check_format()
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
        return status is not None and status["status"] == "finished" and bool(RunArchive(folder).rows)
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
