"""Takes snapshots of a run: captured after a committed round, and written while later rounds continue."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend, Ref
from rayfl.engine.calls import Call
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.server import ServerSnapshot
from rayfl.engine.state_store import StateStore, StoredState
from rayfl.engine.watchdog import Watchdog
from rayfl.errors import RayflError
from rayfl.planning.events import Event, SnapshotFailed, SnapshotTaken
from rayfl.planning.round_index import RoundIndex

Complete = Callable[[ServerSnapshot, Sequence[StoredState]], RunSnapshot]

LASTS_S = 60.0
"""Age in seconds below which the end of a phase needs no snapshot, since the run is quickly repeated.

Runs with `secure` noise take one anyway, since every repeated round releases its results again.
"""


class Snapshotting:
    """Decides when a snapshot is due, and lets hosts and server write it; one at a time.

    Args:
        scenario: The scenario.
        backend: Hosts and server.
        watchdog: Waits for them.
        store: Where they write.
        after: The last round that was committed before.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        scenario: Scenario,
        backend: Backend,
        watchdog: Watchdog,
        store: StateStore,
        after: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scenario, self._backend, self._watchdog = scenario, backend, watchdog
        self._store, self._clock = store, clock
        self._settings = scenario.checkpoint
        self._started = self._latest = clock()
        self._latest_round = after
        self._under_way: tuple[RoundIndex, Complete] | None = None
        self._asked: list[Ref] = []

    def due(self, index: RoundIndex) -> bool:
        """Whether to start one after a committed round; within a phase, not while another is being written."""
        settings, now = self._settings, self._clock()
        ends = settings.ends and index.round_in_phase == index.config(self._scenario).rounds
        if ends and (now - self._started >= LASTS_S or not self._scenario.repeatable):
            return True
        if self._under_way is not None:
            return False
        late = settings.minutes and now - self._latest >= 60 * settings.minutes
        return bool(late or (settings.rounds and index.round - self._latest_round >= settings.rounds))

    def begin(self, index: RoundIndex, complete: Complete, models: Sequence[Ref]) -> None:
        """Starts writing a snapshot; call `finish` for the previous one first.

        Args:
            index: The last committed round.
            complete: Makes the snapshot from the states of server and clients; see `Progress.snapshot`.
            models: Models that have not been evaluated yet.
        """
        self._under_way, self._latest, self._latest_round = (index, complete), self._clock(), index.round
        self._asked = []
        self._backend.server.call("snapshot", index, self._store, *models)
        for host in self._backend.hosts:
            host.call("snapshot", index, self._store)

    def collect(self) -> Generator[Event, None, None]:
        """Reports the current snapshot if it has been written by now.

        Raises:
            LostError: A host that was restarted since has lost states.
        """
        if self._under_way is None:
            return
        try:
            asked = self._asked = self._asked or self._ask(wait=False)
            if len(self._backend.wait(asked, 0)) < len(asked):
                return
            self._asked = []
            parts = [self._backend.get(ref) for ref in asked]
        except RayflError as error:
            yield self._failed(error)
            return
        if all(part is not None for part in parts):
            yield self._done(parts)

    def finish(self) -> Generator[Event, None, None]:
        """Waits for the current snapshot and reports it; raises as `collect`."""
        if self._under_way is None:
            return
        index, _ = self._under_way
        try:
            calls = [Call(ref, "writing a snapshot") for ref in self._ask(wait=True)]
            parts = yield from self._watchdog.wait(calls, index.config(self._scenario).name, index.round)
        except RayflError as error:
            yield self._failed(error)
            return
        yield self._done(parts)

    def _ask(self, wait: bool) -> list[Ref]:
        assert self._under_way is not None
        index, _ = self._under_way
        return [worker.call("written", index, wait) for worker in (self._backend.server, *self._backend.hosts)]

    def _done(self, parts: Sequence[Any]) -> Event:
        assert self._under_way is not None
        (index, complete), self._under_way = self._under_way, None
        server, *hosts = parts
        clients = sorted((state for part in hosts for state in part), key=lambda state: (state.client, state.scope))
        return SnapshotTaken(index.config(self._scenario).name, index.round, complete(server, clients).to_json())

    def _failed(self, error: RayflError) -> Event:
        assert self._under_way is not None
        (index, _), self._under_way = self._under_way, None
        return SnapshotFailed(index.config(self._scenario).name, index.round, str(error))
