"""The connection to Ray and the actors that runs of one program share. Imports Ray only when needed."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rayfl.cluster.early_connection import EarlyConnection, connecting
from rayfl.cluster.tune import in_trial
from rayfl.interruption import handlers_installed_again

if TYPE_CHECKING:
    from rayfl.cluster.actors import KeptActors
    from rayfl.cluster.ray_log import RayLog


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

    def connect_early(self, address: str | None, dashboard: bool) -> None:
        """Starts Ray in the background if necessary; see `connecting`."""
        if not (self._connected or self._early):
            self._early = self._stack.enter_context(connecting(address, dashboard))

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
        from rayfl.cluster.connection import attached, check_dashboard
        from rayfl.cluster.ray_log import RayLog, ray_text_in

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
        from rayfl.cluster.actors import KeptActors

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
