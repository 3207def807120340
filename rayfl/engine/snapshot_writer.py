"""Writes a worker's part of a snapshot in a thread of its own, beside the updates and rounds that go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from rayfl.errors import RayflError

T = TypeVar("T")


class SnapshotWriter(Generic[T]):
    """One snapshot at a time, known by the round that it is of."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rayfl-snapshot")
        self._under_way: tuple[int, Future[T]] | None = None

    def begin(self, round: int, write: Callable[[], T]) -> None:
        """Starts to write.

        Args:
            round: The committed round that the snapshot is of.
            write: Writes what was captured, which nothing may change any more, and returns where it is.
        """
        self._under_way = round, self._thread.submit(write)

    def written(self, round: int, wait: bool) -> T | None:
        """What was written, None as long as that goes on.

        Args:
            round: Of `begin`.
            wait: Whether to wait for it.

        Raises:
            RayflError: It could not be written, or this worker was restarted since.
        """
        if self._under_way is None or self._under_way[0] != round:
            raise RayflError(f"the snapshot of round {round} is lost: a worker that was to write it was restarted")
        future = self._under_way[1]
        return future.result() if wait or future.done() else None
