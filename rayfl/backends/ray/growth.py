"""Hosts that join a run under way: they start beside the others, and take part from the end of a round on."""

from __future__ import annotations

import time
from collections.abc import Callable

import ray
from ray.exceptions import RayError

from rayfl.backends.ray.actors import Actors
from rayfl.backends.ray.failures import as_rayfl_error
from rayfl.backends.ray.log import RayLog
from rayfl.errors import RayflError

LOOKS_EVERY_S = 5.0
"""How often to see whether requested places have arrived, and whether hosts in them have started."""


class Growth:
    """Starts hosts where requested places have arrived, and hands them to the scheduler once they have loaded the run.

    Args:
        actors: The run's actors.
        log: Receives why a host could not start.
        clock: A monotonic clock, in seconds.

    Attributes:
        watched: Whether newcomers announce each client before they train it; see `Attempt.suspect`.
    """

    watched = False

    def __init__(self, actors: Actors, log: RayLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._actors, self._log, self._clock = actors, log, clock
        self._looked = clock()
        self._starting: list[ray.ObjectRef[dict[str, str]]] = []
        self._handed: list[dict[str, str]] = []

    @property
    def is_due(self) -> bool:
        """Whether the last look was some seconds ago."""
        return self._clock() - self._looked >= LOOKS_EVERY_S

    def look(self) -> None:
        """Takes the next step for hosts that are to join."""
        self._looked = self._clock()
        self._starting += [host.call("join", self.watched) for host in self._actors.start_more()]
        started: list[dict[str, str]] = []
        try:
            while self._starting and ray.wait(self._starting[:1], timeout=0)[0]:
                started.append(ray.get(self._starting[0]))
                del self._starting[0]
        except (RayError, RayflError) as error:
            told = as_rayfl_error(error, {}) if isinstance(error, RayError) else error
            self._log.write(f"a worker that was to join could not start: {told}")
            self._actors.dismiss(len(self._handed) + len(started))
            self._starting = []
        if started:
            first = len(self._handed)
            numbers = slice(first, first + len(started))
            nodes = self._actors.nodes()[len(self._actors.hosts) :]
            self._actors.scheduler.call("join", self._actors.newcomers[numbers], nodes[numbers])
            self._handed += started

    def admit(self, hosts: int) -> list[dict[str, str]]:
        """Notes that newcomers have joined, so that there are this many hosts; returns the newcomers' descriptions."""
        joined = hosts - len(self._actors.hosts)
        self._actors.admit(hosts)
        descriptions = self._handed[:joined]
        del self._handed[:joined]
        return descriptions
