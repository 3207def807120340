"""A connection to Ray that is made while the program prepares a run. Loads Ray in that thread alone."""

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
"""Held while rayfl has a connection of its own."""

_GIVEN_UP: set[threading.Thread] = set()
"""Threads whose connections nobody waits for, which they end once they are made."""


class EarlyConnection:
    """Connects to Ray in a thread of its own, or starts Ray there.

    The thread lives as long as the connection: what Ray has started, Linux ends along with the thread that started it.

    Args:
        address: As for `rayfl.cluster.connection.attached`.
        dashboard: Whether Ray is started with its dashboard.
    """

    def __init__(self, address: str | None, dashboard: bool) -> None:
        self._made: Future[tuple[str | None, RayLog]] = Future()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(address, dashboard), name="rayfl connection to Ray")
        self._thread.start()

    def wait(self) -> tuple[str | None, RayLog]:
        """Waits for the connection.

        Returns:
            The address of the dashboard, if one was started, and the log that has received Ray's text so far.

        Raises:
            ScenarioError: As `attached`.
            ResourceError: As `attached`.
        """
        return self._made.result()

    def close(self) -> None:
        """Ends the connection, and what was started for it; waits for it to be made first, since Ray cannot turn back.

        A connection that could not be made is closed already.
        """
        self._over.set()
        self._thread.join()

    def give_up(self) -> None:
        """Ends the connection as `close` does, but where it has yet to be made, others wait for that.

        They are whoever wants a connection next, and Python before it exits.
        """
        if self._made.done():
            self.close()
        else:
            _GIVEN_UP.add(self._thread)
            self._over.set()

    def _hold(self, address: str | None, dashboard: bool) -> None:
        # in this thread, since Ray takes as long to load as PyTorch does beside it
        try:
            from rayfl.cluster.connection import connect
            from rayfl.cluster.ray_log import RayLog, ray_text_in

            log = RayLog()
            url = connect(address, dashboard=dashboard)
        except BaseException as error:  # whatever Ray raises is for the run to tell
            self._made.set_exception(error)
            return
        with ray_text_in(log):
            self._made.set_result((url, log))
            self._over.wait()
            import ray

            ray.shutdown()


@contextmanager
def connecting(address: str | None, dashboard: bool) -> Iterator[EarlyConnection | None]:
    """Starts Ray while the block prepares a run, and keeps it for the duration of the block.

    An error in the block does not wait for Ray's start, and can be told at once; see `EarlyConnection.give_up`.

    Only where Ray is to be started here, which takes seconds: a connection to a cluster that is there is quick to make,
    and inside a submitted job it changes the working directory, from which the other thread may be importing.

    Args:
        address: As for `rayfl.cluster.connection.attached`.
        dashboard: Whether Ray is started with its dashboard.

    Yields:
        The connection; None where there is a cluster to connect to, the program is connected already, or another
        thread's run is.
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
    """Waits until connections that were given up before they were made are made, and closed; holds CONNECTION."""
    while _GIVEN_UP:
        thread = next(iter(_GIVEN_UP))
        thread.join()
        _GIVEN_UP.discard(thread)


def _is_connected() -> bool:
    if "ray" not in sys.modules:
        return False
    import ray

    return ray.is_initialized()
