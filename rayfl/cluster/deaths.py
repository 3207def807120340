"""What has died of a run's actors, as far as its driver can tell."""

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
"""How often Ray is asked what it has started again."""

ANSWERS_WITHIN_S = 10.0
"""A server that takes longer is dead or hangs."""


class Deaths:
    """Watches some actors, which may have served other runs before.

    Args:
        actors: The run's.
    """

    def __init__(self, actors: Actors) -> None:
        self._actors, self._asked = actors, time.monotonic()
        self._restarts = [_restarts_of(host) for host in actors.hosts]

    def since(self, done: RoundDone) -> Iterator[HostRestarted]:
        """Hosts that Ray has started again since it was last asked; it is asked every few seconds."""
        if time.monotonic() - self._asked < ASKS_EVERY_S:
            return
        self._asked = time.monotonic()
        for number, host in enumerate(self._actors.hosts):
            before, self._restarts[number] = self._restarts[number], _restarts_of(host)
            if self._restarts[number] > before:
                yield HostRestarted(done.phase, done.round, number, self._restarts[number])

    def check_places(self) -> None:
        """Checks that all hosts have a place, for Ray waits without an end for a node that takes a lost one's part.

        Raises:
            LostError: A node was lost, and no other has room for what was on it.
        """
        for group in self._actors.groups:
            if placement_group_table(group).get("state") == "RESCHEDULING":
                raise LostError("a node was lost with its hosts, and no other node has room for them")

    def in_updates(self) -> dict[int, int]:
        """By client, how often hosts died in its updates; nothing where the server that counts is dead too."""
        try:
            deaths: dict[int, int] = ray.get(self._actors.server.call("deaths"), timeout=ANSWERS_WITHIN_S)
        except RayError:
            return {}
        return deaths


def _restarts_of(worker: ActorWorker) -> int:
    return int(actors(worker.actor._actor_id.hex()).get("NumRestarts", 0))
