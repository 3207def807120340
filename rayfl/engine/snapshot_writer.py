"""Writes a worker's part of a snapshot in a background thread while updates and rounds continue."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from rayfl.errors import RayflError

T = TypeVar("T")


class SnapshotWriter(Generic[T]):
    """Writes one snapshot at a time, identified by its round."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rayfl-snapshot")
        self._under_way: tuple[int, Future[T]] | None = None

    def begin(self, round: int, write: Callable[[], T]) -> None:
        """Starts writing.

        Args:
            round: The snapshot's committed round.
            write: Writes the captured state, which nothing may modify any more, and returns its manifest.
        """
        self._under_way = round, self._thread.submit(write)

    def written(self, round: int, wait: bool) -> T | None:
        """Returns the manifest; None while it is being written.

        Args:
            round: The round given to `begin`.
            wait: Whether to wait for it.

        Raises:
            RayflError: Writing failed, or this worker was restarted since.
        """
        if self._under_way is None or self._under_way[0] != round:
            raise RayflError(f"the snapshot of round {round} is lost: a worker that was writing it was restarted")
        future = self._under_way[1]
        return future.result() if wait or future.done() else None
