"""Writes checkpoints in a thread while rounds continue, and keeps records safe while storage fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from rich.console import Console

from rayfl.console import print_warning
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.errors import ResourceError
from rayfl.runs.checkpoints import Checkpoints, StoredCheckpoint
from rayfl.runs.records import Records


class CheckpointWriter:
    """Writes one checkpoint at a time.

    A manifest names every client that keeps a state: with 10,000 of them, checking, writing and syncing it takes tenths
    of a second, and rounds should not wait for that.

    Args:
        checkpoints: The run's checkpoints.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rayfl-checkpoint")
        self._under_way: Future[ResourceError | None] | None = None

    def begin(self, snapshot: str, records: Mapping[str, Any]) -> None:
        """Starts to add a checkpoint; call `collect` for the previous one first.

        Args:
            snapshot: A `RunSnapshot` as JSON.
            records: See `StoredCheckpoint`; copied, so the caller may change them afterwards.
        """
        copied = json.dumps(records)

        def add() -> ResourceError | None:
            return self._checkpoints.add(StoredCheckpoint(RunSnapshot.from_json(snapshot), json.loads(copied)))

        self._under_way = self._thread.submit(add)

    def collect(self, wait: bool = False) -> ResourceError | None:
        """The result of `Checkpoints.add` for a checkpoint completed since the last call.

        Args:
            wait: Whether to wait for a checkpoint that is being written.

        Raises:
            ResourceError: The checkpoint could not be written.
        """
        if self._under_way is None or not (wait or self._under_way.done()):
            return None
        under_way, self._under_way = self._under_way, None
        return under_way.result()

    def close(self) -> None:
        """Waits for a checkpoint that is being written."""
        self._thread.shutdown()


class RunStorage:
    """Writes a run's checkpoints in the background, and decides whether a failure to write ends the run.

    Args:
        records: The run's records.
        checkpoints: The run's checkpoints; None if it writes none.
        goes_on: Whether the run continues after a failure to write (`checkpoint.on_failure`).
        console: Prints warnings.
    """

    def __init__(self, records: Records, checkpoints: Checkpoints | None, goes_on: bool, console: Console) -> None:
        self._records, self._goes_on, self._console = records, goes_on, console
        self._writer = CheckpointWriter(checkpoints) if checkpoints else None
        self._last_not_recorded = ""

    def begin(self, snapshot: str, state: Callable[[], dict[str, Any]]) -> None:
        """Begins a checkpoint, once the previous one is written.

        Args:
            snapshot: The output of `RunSnapshot.to_json`.
            state: Returns the run's state (`Run.state`).

        Raises:
            ResourceError: It could not be written, and the run must not continue.
        """
        assert self._writer is not None
        self.collect(wait=True)
        self.check_folder()
        try:
            self._writer.begin(snapshot, state())
            self._last_not_recorded = ""  # all records are written
        except ResourceError as error:
            self.not_kept(str(error))

    def collect(self, wait: bool = False) -> None:
        """Reports the outcome of a checkpoint that was begun before.

        Args:
            wait: Whether to wait for the outcome.

        Raises:
            ResourceError: As for `begin`.
        """
        if self._writer is None:
            return
        try:
            stays = self._writer.collect(wait)
        except ResourceError as error:
            self.not_kept(str(error))
            return
        if stays:
            print_warning(self._console, f"files of older checkpoints could not be removed yet: {stays}")

    def not_kept(self, reason: str) -> None:
        """Continues without a checkpoint.

        Raises:
            ResourceError: The run must not continue.
        """
        self._go_on("no checkpoint was written", reason)

    def check_folder(self) -> None:
        """Recreates the run's folder if it was removed.

        Raises:
            ResourceError: It was removed, and the run must not continue.
        """
        try:
            self._records.check_exists()
        except ResourceError as error:
            self.not_recorded(error)

    def not_recorded(self, error: ResourceError) -> None:
        """Continues with unwritten records, which are written with the next event, or into a recreated folder.

        Raises:
            ResourceError: The run must not continue.
        """
        why = str(error)
        try:
            self._records.check_exists()
        except ResourceError as removed:
            why = str(removed)  # the reason that the file cannot be written
        with suppress(ResourceError):
            self._records.recreate()
        if why != self._last_not_recorded:
            self._go_on("some records are not written yet", why)
            self._last_not_recorded = why

    def close(self) -> None:
        """Waits for a checkpoint that is being written, and ignores its outcome."""
        if self._writer is not None:
            self._writer.close()

    def _go_on(self, what: str, why: str) -> None:
        if not self._goes_on:
            raise ResourceError(f"{why}; with checkpoint.on_failure = 'continue' the run would have continued")
        print_warning(self._console, f"{what}; the run continues: {why}")
