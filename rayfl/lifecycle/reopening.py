"""A run's folder is opened again, to go on from its last checkpoint that is whole."""

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
from rayfl.privacy.release_ledger import ReleaseLedger
from rayfl.report.folder import METRICS_FILE
from rayfl.report.records import CLIENTS_FILE, Records
from rayfl.report.status import UNDER_WAY, read_status


@dataclass(frozen=True)
class Reopened:
    """A run that goes on.

    Attributes:
        where: The run's folder, or its URI.
        records: In its folder.
        store: Where the states of its checkpoints are.
        checkpoints: Those that can be read, the last one first; none where the run begins again. With `secure` noise no
            more than one: what records hold of later rounds would not come again.
        ledger: Of a run with `secure` noise.
        console: Where it is said from which round the run goes on, and what is wrong with others.
    """

    where: str
    records: Records
    store: StateStore
    checkpoints: Sequence[Checkpoint]
    ledger: ReleaseLedger | None
    console: Console

    @property
    def state(self) -> Mapping[str, Any] | None:
        """What the run's records go on from: of the last checkpoint, even where its snapshot is damaged."""
        return self.checkpoints[0].records if self.checkpoints else None

    def restore(self, session: Session) -> None:
        """Restores the last snapshot that is whole.

        Raises:
            ResourceError: None is.
        """
        for checkpoint in self.checkpoints:
            try:
                session.restore(checkpoint.snapshot, self.store)
            except DamagedStateError as error:
                self._say(f"warning: the checkpoint of round {checkpoint.round} cannot be used: {error}")
                continue
            self._say(f"the run goes on after round {checkpoint.round}")
            return
        if self.checkpoints:
            raise CheckpointError(f"no checkpoint in '{self.where}' is whole; run the scenario again in another folder")

    def _say(self, text: str) -> None:
        self.console.print(Text(text, style="yellow" if text.startswith("warning") else ""), soft_wrap=True)


def reopen(folder: Path, job: Job, console: Console, mirror: Mirror | None = None) -> Reopened:
    """Opens the records of a run that has ended, and finds its checkpoints.

    Args:
        folder: The run's own.
        job: What is to go on.
        console: Where it is said what is wrong with a checkpoint.
        mirror: Publishes the folder, of a run at a URI.

    Raises:
        ScenarioError: The job is not that of the run.
        ResourceError: The run is under way, or all of its checkpoints are damaged, or its ledger is.
    """
    where, status = str(mirror.remote if mirror else folder), read_status(folder)
    if status is not None and status["status"] in UNDER_WAY:
        raise ResourceError(f"the run in '{where}' is under way: it cannot be resumed before it has ended")
    found = Checkpoints(folder, job.scenario.checkpoint.keep, mirror)
    readable: list[Checkpoint] = []
    damaged: list[ResourceError] = []
    for checkpoint in found.newest_first() if job.scenario.repeatable else found.newest_whole():
        if isinstance(checkpoint, Checkpoint):
            readable.append(checkpoint)
        else:
            damaged.append(checkpoint)
            console.print(Text(f"warning: {checkpoint}", style="yellow"), soft_wrap=True)
    if damaged and not readable:
        raise CheckpointError(f"no checkpoint in '{where}' is whole: {damaged[0]}")
    done = readable[0].records["seen"]["done"] if readable else 0
    for warning in check_same_run(folder, job, done, where):
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    committed = (status or {}).get("committed_rounds", 0)
    ledger = None if job.scenario.repeatable else ReleaseLedger.reopen(folder, committed)
    if ledger and readable and readable[0].snapshot.in_flight:
        raise CheckpointError(
            f"'{folder}' cannot go on from a checkpoint: with `secure` noise the updates that were in flight "
            "would be released again, and are charged once; remove its checkpoints to begin it again, charged for all"
        )
    if not readable:
        console.print(Text(f"'{where}' has no checkpoint: the run begins again"), soft_wrap=True)
        for name in (METRICS_FILE, CLIENTS_FILE):
            (folder / name).unlink(missing_ok=True)
    try:
        found.sweep()
    except ResourceError as error:
        console.print(
            Text(f"warning: what no checkpoint needs any longer stays: {error}", style="yellow"), soft_wrap=True
        )
    records = Records(folder, reopened=True) if readable else Records.within(folder)
    return Reopened(where, records, found.store, readable, ledger, console)
