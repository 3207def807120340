"""Reopens a run's folder to continue from its latest intact checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rayfl.checkpoint.changes import check_same_run
from rayfl.checkpoint.checkpoints import Checkpoint, Checkpoints
from rayfl.engine.job import Job, Session
from rayfl.engine.state_store import DamagedStateError, StateStore
from rayfl.errors import CheckpointError, ResourceError
from rayfl.lifecycle.mirror import Mirror
from rayfl.lifecycle.starting_over import OldRecords
from rayfl.privacy.release_ledger import ReleaseLedger
from rayfl.report.records import Records
from rayfl.report.status import UNDER_WAY, readable_status


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
    checkpoints: Sequence[Checkpoint]
    ledger: ReleaseLedger | None
    console: Console

    @property
    def state(self) -> Mapping[str, Any] | None:
        """The state of the run's records: that of the latest checkpoint, even if its snapshot is damaged."""
        return self.checkpoints[0].records if self.checkpoints else None

    def restore(self, session: Session) -> None:
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
        self.console.print(Text(text, style="yellow" if text.startswith("warning") else ""), soft_wrap=True)


def reopen(folder: Path, job: Job, console: Console, mirror: Mirror | None = None) -> Reopened:
    """Opens the records of a run that has ended, and finds its checkpoints.

    Args:
        folder: The run's folder.
        job: The job to continue.
        console: Prints why checkpoints cannot be used.
        mirror: Publishes the folder of a run at a URI.

    Raises:
        ScenarioError: The job differs from that of the run.
        ResourceError: The run is still active, all of its checkpoints or its ledger are damaged, or a checkpoint is of
            another version's format.
    """
    where = str(mirror.remote if mirror else folder)

    def warn(text: str) -> None:
        console.print(Text(f"warning: {text}", style="yellow"), soft_wrap=True)

    status = readable_status(folder, lambda damage: warn(f"{damage}; the run is resumed without it"))
    if status is not None and status["status"] in UNDER_WAY:
        raise ResourceError(f"the run in '{where}' is still active: resume it after it has ended")
    found = Checkpoints(folder, job.scenario.checkpoint.keep, mirror)
    readable: list[Checkpoint] = []
    damaged: list[ResourceError] = []
    for checkpoint in found.newest_first() if job.scenario.repeatable else found.newest_whole():
        if isinstance(checkpoint, Checkpoint):
            readable.append(checkpoint)
        else:
            damaged.append(checkpoint)
            warn(str(checkpoint))
    if damaged and not readable:
        raise CheckpointError(f"no checkpoint in '{where}' is intact: {damaged[0]}")
    for warning in check_same_run(folder, job, readable[0].records if readable else None, where):
        warn(warning)
    committed = max(
        int((status or {}).get("committed_rounds", 0)), readable[0].records["seen"]["done"] if readable else 0
    )
    ledger = None if job.scenario.repeatable else ReleaseLedger.reopen(folder, committed)
    if ledger and readable and readable[0].snapshot.in_flight:
        raise CheckpointError(
            f"'{folder}' cannot continue from a checkpoint: with `secure` noise, updates in flight would be released "
            "twice but charged once; remove its checkpoints to start over, with everything charged so far"
        )
    if not readable:
        console.print(Text(f"'{where}' has no checkpoint: the run starts over"), soft_wrap=True)
        OldRecords(folder).set_aside()
    try:
        found.sweep()
    except ResourceError as error:
        warn(f"unused checkpoint files could not be removed: {error}")
    records = Records(folder, reopened=True) if readable else Records.within(folder)
    return Reopened(where, records, found.store, readable, ledger, console)
