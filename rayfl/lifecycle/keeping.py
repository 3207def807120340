"""What a run keeps for later: checkpoints, and records that a storage which fails for a while does not lose."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from rayfl.checkpoint.checkpoint_writer import CheckpointWriter
from rayfl.checkpoint.checkpoints import Checkpoints
from rayfl.errors import ResourceError
from rayfl.report.records import Records


class Keeping:
    """Writes a run's checkpoints beside it, and says what could not be written.

    Args:
        records: The run's.
        checkpoints: Where they go; None if nowhere.
        goes_on: Whether the run goes on where something could not be written: `checkpoint.on_failure`.
        console: Where that is said.
    """

    def __init__(self, records: Records, checkpoints: Checkpoints | None, goes_on: bool, console: Console) -> None:
        self._records, self._goes_on, self._console = records, goes_on, console
        self._writer = CheckpointWriter(checkpoints) if checkpoints else None
        self._last_not_recorded = ""

    def begin(self, snapshot: str, state: Callable[[], dict[str, Any]]) -> None:
        """Begins a checkpoint, once the one before is written.

        Args:
            snapshot: As `RunSnapshot.to_json` writes it.
            state: Returns what the run needs beside it; see `Run.state`.

        Raises:
            ResourceError: It could not be written, and the run is not to go on.
        """
        assert self._writer is not None
        self.collect(wait=True)
        self.check_folder()
        try:
            self._writer.begin(snapshot, state())
            self._last_not_recorded = ""  # all was written
        except ResourceError as error:
            self.not_kept(str(error))

    def collect(self, wait: bool = False) -> None:
        """Tells what became of a checkpoint that was begun before.

        Args:
            wait: Whether to wait until that is known.

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
            self._warn(f"what older checkpoints have written stays until the next: {stays}")

    def not_kept(self, reason: str) -> None:
        """Goes on without a checkpoint.

        Raises:
            ResourceError: The run is not to go on.
        """
        self._go_on("no checkpoint was written", reason)

    def check_folder(self) -> None:
        """Makes the run's folder anew if it is gone.

        Raises:
            ResourceError: It is, and the run is not to go on.
        """
        try:
            self._records.check_there()
        except ResourceError as error:
            self.not_recorded(error)

    def not_recorded(self, error: ResourceError) -> None:
        """Goes on with records that could not be written, which are with the next event, or in a folder made anew.

        Raises:
            ResourceError: The run is not to go on.
        """
        with suppress(ResourceError):
            self._records.make_again()
        if str(error) != self._last_not_recorded:
            self._go_on("records wait to be written", str(error))
            self._last_not_recorded = str(error)

    def close(self) -> None:
        """Waits for what is being written, whatever becomes of it."""
        if self._writer is not None:
            self._writer.close()

    def _go_on(self, what: str, why: str) -> None:
        if not self._goes_on:
            raise ResourceError(f"{why}; with checkpoint.on_failure = 'continue' the run would have gone on")
        self._warn(f"{what}, and the run goes on: {why}")

    def _warn(self, what: str) -> None:
        self._console.print(Text(f"warning: {what}", style="yellow"), soft_wrap=True)
