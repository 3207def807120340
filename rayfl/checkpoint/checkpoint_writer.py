"""Writes checkpoints in a separate thread while rounds continue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rayfl.checkpoint.checkpoints import Checkpoint, Checkpoints
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.errors import ResourceError


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
            records: See `Checkpoint`; copied, so the caller may change them afterwards.
        """
        copied = json.dumps(records, allow_nan=False)

        def add() -> ResourceError | None:
            return self._checkpoints.add(Checkpoint(RunSnapshot.from_json(snapshot), json.loads(copied)))

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
