"""Adds checkpoints to the others in a thread of its own, beside the rounds that go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rayfl.checkpoint.checkpoints import Checkpoint, Checkpoints
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.errors import ResourceError


class CheckpointWriter:
    """One checkpoint at a time.

    A manifest names every client that keeps something: with 10,000 of them it takes tenths of a second to be checked,
    written and synced, for which no round is to wait.

    Args:
        checkpoints: The others.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rayfl-checkpoint")
        self._under_way: Future[ResourceError | None] | None = None

    def begin(self, snapshot: str, records: Mapping[str, Any]) -> None:
        """Starts to add a checkpoint; `collect` the one before first.

        Args:
            snapshot: A `RunSnapshot` as JSON.
            records: As `Checkpoint` has them. Whoever they are from may change them afterwards.
        """
        copied = json.dumps(records, allow_nan=False)

        def add() -> ResourceError | None:
            return self._checkpoints.add(Checkpoint(RunSnapshot.from_json(snapshot), json.loads(copied)))

        self._under_way = self._thread.submit(add)

    def collect(self, wait: bool = False) -> ResourceError | None:
        """What `Checkpoints.add` returned for a checkpoint that was added since the last call.

        Args:
            wait: Whether to wait for the one under way.

        Raises:
            ResourceError: It could not be written.
        """
        if self._under_way is None or not (wait or self._under_way.done()):
            return None
        under_way, self._under_way = self._under_way, None
        return under_way.result()

    def close(self) -> None:
        """Waits for what is under way."""
        self._thread.shutdown()
