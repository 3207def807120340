"""Which of a run's actors have died, as far as the driver can tell."""

from __future__ import annotations

import time
from collections.abc import Iterator

import ray
from ray._private.state import actors
from ray.exceptions import RayError
from ray.util import placement_group_table

from rayfl.cluster.actors import Actors
from rayfl.cluster.workers import ActorWorker
from rayfl.errors import LostError
from rayfl.planning.events import HostRestarted, RoundDone

ASKS_EVERY_S = 5.0
"""How often to ask Ray which actors it has restarted."""

ANSWERS_WITHIN_S = 10.0
"""If the server takes longer, it is dead or hangs."""


class Deaths:
    """Watches a run's actors, which earlier runs may have used.

    Args:
        actors: The run's actors.
    """

    def __init__(self, actors: Actors) -> None:
        self._actors, self._asked = actors, time.monotonic()
        self._restarts = [_restarts_of(host) for host in actors.hosts]

    def since(self, done: RoundDone) -> Iterator[HostRestarted]:
        """Hosts that Ray has restarted since the last call; asks Ray every few seconds at most."""
        if time.monotonic() - self._asked < ASKS_EVERY_S:
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
            if placement_group_table(group).get("state") == "RESCHEDULING":
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
