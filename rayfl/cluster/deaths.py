"""Which of a run's actors have died, as far as the driver can tell."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator

import ray
from ray._private.state import actors
from ray.exceptions import RayError
from ray.util import placement_group_table

from rayfl.cluster.actors import Actors
from rayfl.cluster.workers import ActorWorker
from rayfl.errors import LostError, ResourceError
from rayfl.planning.events import HostRestarted, RoundDone

ASKS_EVERY_S = 5.0
"""How often to ask Ray which actors it has restarted."""

ANSWERS_WITHIN_S = 10.0
"""If the server takes longer, it is dead or hangs."""


PROBED_EVERY_S = 5.0
"""How often to see whether the cluster's head is there."""

ENDS_AFTER_S = float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", "60"))  # noqa: SIM112
"""How long after the loss of the head Ray ends every program of the cluster."""

TO_END_S = 20.0
"""How long before that a run ends by itself, to write how it ended."""


class Head:
    """The head of the cluster (its control service), without which Ray ends every program after a minute.

    Args:
        reach: Connects to it, or raises OSError.
        most_s: How long it may be out of reach, since one that is replicated comes back.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        reach: Callable[[], None],
        most_s: float = ENDS_AFTER_S - TO_END_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reach, self._most_s, self._clock = reach, most_s, clock
        self._probed = self._seen = clock()

    def check(self) -> None:
        """Sees every few seconds whether it is there; raises what `is_there` raises."""
        if self._clock() - self._probed >= PROBED_EVERY_S:
            self.is_there()

    def is_there(self) -> bool:
        """Whether it can be reached; to be asked before each of Ray's calls to it, which block without it.

        Raises:
            ResourceError: It has been out of reach for so long that Ray is about to end this program.
        """
        error = self._reached()
        self._probed = self._clock()
        if error is None:
            self._seen = self._probed
        elif self._probed - self._seen > self._most_s:
            raise ResourceError(f"the head of the Ray cluster is lost ({error}), and with it all processes of the run")
        return error is None

    def _reached(self) -> OSError | None:
        try:
            self._reach()
        except OSError as error:
            return error
        return None


def reach_head() -> None:
    """Connects to the head of the cluster that this program is attached to, or raises OSError."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=PROBED_EVERY_S).close()


class Deaths:
    """Watches a run's actors, which earlier runs may have used.

    Args:
        actors: The run's actors.
        head: The head of the cluster.
    """

    def __init__(self, actors: Actors, head: Head) -> None:
        self._head = head
        self._actors, self._asked = actors, time.monotonic()
        self._restarts = [_restarts_of(host) for host in actors.hosts]

    def since(self, done: RoundDone) -> Iterator[HostRestarted]:
        """Hosts that Ray has restarted since the last call; asks Ray every few seconds at most."""
        if time.monotonic() - self._asked < ASKS_EVERY_S or not self._head.is_there():
            return
        self._asked = time.monotonic()
        for number, host in enumerate(self._actors.hosts):
            before, self._restarts[number] = self._restarts[number], _restarts_of(host)
            if self._restarts[number] > before:
                yield HostRestarted(done.phase, done.round, number, self._restarts[number])

    def check_places(self) -> None:
        """Checks that all hosts have a place, since Ray waits forever for a node to replace a lost one.

        Raises:
            LostError: A node was lost, and no other has room for its hosts.
        """
        for group in self._actors.groups:
            if self._head.is_there() and placement_group_table(group).get("state") == "RESCHEDULING":
                raise LostError("a node was lost with its workers, and no other node has room for them")

    def in_updates(self) -> dict[int, int]:
        """How often hosts died in each client's updates; empty if the server, which counts, is dead too."""
        try:
            deaths: dict[int, int] = ray.get(self._actors.server.call("deaths"), timeout=ANSWERS_WITHIN_S)
        except RayError:
            return {}
        return deaths


def _restarts_of(worker: ActorWorker) -> int:
    return int(actors(worker.actor._actor_id.hex()).get("NumRestarts", 0))
