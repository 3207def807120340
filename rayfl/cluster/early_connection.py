"""Connects to Ray in a thread while the program prepares a run; only that thread imports Ray."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rayfl.cluster.ray_log import RayLog

CONNECTION = threading.RLock()
"""Held while rayfl has its own connection to Ray."""

_GIVEN_UP: set[threading.Thread] = set()
"""Threads whose connections are no longer needed; each closes its connection once it is made."""


class EarlyConnection:
    """Connects to Ray, or starts it, in a separate thread.

    The thread lives as long as the connection: Linux ends Ray's processes along with the thread that started them.

    Args:
        address: As for `rayfl.cluster.connection.attached`.
        dashboard: Whether to start Ray with its dashboard.
    """

    def __init__(self, address: str | None, dashboard: bool) -> None:
        self._made: Future[tuple[str | None, RayLog]] = Future()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(address, dashboard), name="rayfl connection to Ray")
        self._thread.start()

    def wait(self) -> tuple[str | None, RayLog]:
        """Waits for the connection.

        Returns:
            The address of the dashboard, if one was started, and the log with Ray's messages so far.

        Raises:
            ScenarioError: As `attached`.
            ResourceError: As `attached`.
        """
        return self._made.result()

    def close(self) -> None:
        """Waits for the connection, since Ray cannot abort, then closes it; stops Ray if it was started here.

        A failed connection is already closed.
        """
        self._over.set()
        self._thread.join()

    def give_up(self) -> None:
        """As `close`, but does not wait for a connection that is still being made.

        The next attempt to connect waits for it, and so does Python before it exits.
        """
        if self._made.done():
            self.close()
        else:
            _GIVEN_UP.add(self._thread)
            self._over.set()

    def _hold(self, address: str | None, dashboard: bool) -> None:
        # imported in this thread, since Ray takes as long to load as PyTorch, which the main thread loads
        try:
            from rayfl.cluster.connection import connect
            from rayfl.cluster.ray_log import RayLog, ray_text_in

            log = RayLog()
            url = connect(address, dashboard=dashboard)
        except BaseException as error:  # the run reports whatever Ray raises
            self._made.set_exception(error)
            return
        with ray_text_in(log):
            self._made.set_result((url, log))
            self._over.wait()
            import ray

            ray.shutdown()


@contextmanager
def connecting(address: str | None, dashboard: bool) -> Iterator[EarlyConnection | None]:
    """Starts Ray while the block prepares a run, and keeps it running for the duration of the block.

    An error in the block is reported at once, without waiting for Ray to start; see `EarlyConnection.give_up`.

    Does so only if Ray must be started here, which takes seconds: connecting to an existing cluster is quick, and
    inside a submitted job it changes the working directory, from which the main thread may be importing.

    Args:
        address: As for `rayfl.cluster.connection.attached`.
        dashboard: Whether to start Ray with its dashboard.

    Yields:
        The connection; None if a cluster is named, or this program or another of its threads is already connected.
    """
    if address or os.environ.get("RAY_ADDRESS") or not CONNECTION.acquire(blocking=False):
        yield None
        return
    try:
        wait_for_given_up()
        early = None if _is_connected() else EarlyConnection(address, dashboard)
    except BaseException:
        CONNECTION.release()
        raise
    if early is None:
        CONNECTION.release()
        yield None
        return
    try:
        yield early
    except BaseException:
        early.give_up()
        raise
    else:
        early.close()
    finally:
        CONNECTION.release()


def wait_for_given_up() -> None:
    """Waits until all connections that were given up are made and closed; the caller holds CONNECTION."""
    while _GIVEN_UP:
        thread = next(iter(_GIVEN_UP))
        thread.join()
        _GIVEN_UP.discard(thread)


def _is_connected() -> bool:
    if "ray" not in sys.modules:
        return False
    import ray

    return ray.is_initialized()
