"""The connection to Ray and the actors that runs of one program share. Imports Ray only when needed.

A connection can be made early, in a thread while the program prepares a run; then only that thread imports Ray.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rayfl.backends.ray.tune import in_trial
from rayfl.interruption import handlers_installed_again

if TYPE_CHECKING:
    from rayfl.backends.ray.actors import KeptActors
    from rayfl.backends.ray.log import RayLog
    from rayfl.config.scenario import Scenario


CONNECTION = threading.RLock()
"""Held while rayfl has its own connection to Ray."""

Begin = Callable[[], Callable[[], None]]
"""Begins something on a connection, and returns what ends it."""

_GIVEN_UP: set[threading.Thread] = set()
"""Threads whose connections are no longer needed; each closes its connection once it is made."""


class EarlyConnection:
    """Connects to Ray, or starts it, in a separate thread.

    The thread lives as long as the connection: Linux ends Ray's processes along with the thread that started them.

    Args:
        address: As for `rayfl.backends.ray.connection.attached`.
        dashboard: Whether to start Ray with its dashboard.
        begin: Called in that thread as soon as Ray is there; what it returns is called before Ray is shut down.
    """

    def __init__(self, address: str | None, dashboard: bool, begin: Begin | None = None) -> None:
        self._made: Future[tuple[str | None, RayLog]] = Future()
        self._imported, self._over, self._begin = threading.Event(), threading.Event(), begin
        self._thread = threading.Thread(target=self._hold, args=(address, dashboard), name="rayfl connection to Ray")
        self._thread.start()

    def wait_for_import(self) -> None:
        """Waits until Ray is imported and begins to start, or has failed to.

        Threads import in turns: importing PyTorch meanwhile would only make Ray, which takes longer, start later.
        """
        self._imported.wait()

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
        try:
            from rayfl.backends.ray.connection import connect
            from rayfl.backends.ray.log import RayLog, ray_text_in

            self._imported.set()
            log = RayLog()
            url = connect(address, dashboard=dashboard)
        except BaseException as error:  # the run reports whatever Ray raises
            self._made.set_exception(error)
            return
        finally:
            self._imported.set()
        import ray

        with ray_text_in(log), ExitStack() as stack:
            stack.callback(ray.shutdown)
            try:
                if self._begin and not self._over.is_set():
                    stack.callback(self._begin())
            except BaseException as error:
                self._made.set_exception(error)
                return
            self._made.set_result((url, log))
            self._over.wait()


@contextmanager
def connecting(address: str | None, dashboard: bool, begin: Begin | None = None) -> Iterator[EarlyConnection | None]:
    """Starts Ray while the block prepares a run, and keeps it running for the duration of the block.

    An error in the block is reported at once, without waiting for Ray to start; see `EarlyConnection.give_up`.

    Does so only if Ray must be started here, which takes seconds: connecting to an existing cluster is quick, and
    inside a submitted job it changes the working directory, from which the main thread may be importing.

    Args:
        address: As for `rayfl.backends.ray.connection.attached`.
        dashboard: Whether to start Ray with its dashboard.
        begin: See `EarlyConnection`.

    Yields:
        The connection; None if a cluster is named, or this program or another of its threads is already connected.
    """
    if address or os.environ.get("RAY_ADDRESS") or not CONNECTION.acquire(blocking=False):
        yield None
        return
    try:
        wait_for_given_up()
        early = None if _is_connected() else EarlyConnection(address, dashboard, begin)
    except BaseException:
        CONNECTION.release()
        raise
    if early is None:
        CONNECTION.release()
        yield None
        return
    try:
        early.wait_for_import()
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


class KeptCluster:
    """A connection to Ray and its actors; a context manager that ends both. For use by a single thread."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._early: EarlyConnection | None = None
        self._connected = False
        self._url: str | None = None
        self._log: RayLog | None = None

    def __enter__(self) -> KeptCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connected, self._early = False, None
        self._stack.__exit__(kind, error, trace)

    def connect_early(self, address: str | None, scenario: Scenario) -> None:
        """Starts Ray in the background if necessary (see `connecting`), and there the actors of a scenario."""

        def begin() -> Callable[[], None]:
            self.actors.begin(scenario)
            return self.actors.discard

        if not (self._connected or self._early):
            self._early = self._stack.enter_context(connecting(address, scenario.resources.dashboard, begin))

    def wait_for_ray(self) -> None:
        """Waits for a connection that was begun early, since two threads cannot import Ray at once.

        Raises:
            ScenarioError: As `attached`.
            ResourceError: As `attached`.
        """
        if self._early:
            self._early.wait()

    def connect(self, address: str | None, dashboard: bool) -> str | None:
        """Waits for the connection, or makes it.

        Returns:
            The address of the dashboard, if one was started.

        Raises:
            ScenarioError: As `attached`.
            ResourceError: As `attached`.
        """
        from rayfl.backends.ray.connection import attached, check_dashboard
        from rayfl.backends.ray.log import RayLog, ray_text_in

        if self._connected:
            check_dashboard(dashboard and not self._url)
        elif self._early:
            self._url, self._log = self._early.wait()
            handlers_installed_again()
        else:
            self._url = self._stack.enter_context(attached(address, dashboard=dashboard))
            self._log = RayLog()
            self._stack.enter_context(ray_text_in(self._log))
        if not self._connected:
            self._stack.callback(self.actors.discard)
        self._connected = True
        return self._url

    def log_to(self, path: Path | None) -> None:
        """Writes Ray's messages to a file from now on; the first file also receives the earlier ones."""
        if self._log is not None:
            self._log.begin(path)

    @cached_property
    def actors(self) -> KeptActors:
        """The actors."""
        from rayfl.backends.ray.actors import KeptActors

        return KeptActors()


def cluster_of_trials() -> KeptCluster | None:
    """The cluster that the Ray Tune trials of this process share; None outside of trials.

    With `tune.TuneConfig(reuse_actors=True)`, Tune runs several trials in one process. The hosts end with the process.
    """
    if not in_trial():
        return None
    if not _OF_TRIALS:
        _OF_TRIALS.append(KeptCluster())
    return _OF_TRIALS[0]


_OF_TRIALS: list[KeptCluster] = []
"""The cluster of this process, once a trial has run in it."""
