"""Snapshots of a run between two rounds: plain data that names stored states by digest.

They are captured after a committed round, and written while later rounds continue.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend, Call, Ref, Worker
from rayfl.engine.events import Event, SnapshotFailed, SnapshotTaken
from rayfl.engine.plain_events import plain_spending, spending_from
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.sampling import SamplingSnapshot
from rayfl.engine.privacy_budget import BudgetSnapshot
from rayfl.engine.server import ServerSnapshot
from rayfl.engine.state.segments import StoredStates, WrittenStates
from rayfl.engine.state.state_store import StateStore
from rayfl.engine.totals import Simulated, Traffic
from rayfl.engine.watchdog import Watchdog
from rayfl.errors import RayflError


@dataclass(frozen=True)
class RunSnapshot:
    """Together with its states, everything that a run needs to continue, on any number of hosts.

    Attributes:
        index: The last committed round.
        sampling: The state that later cohorts depend on.
        traffic: Total since the start of the run.
        evaluations: Rounds whose evaluation has not been reported yet; the server has their models.
        privacy: Privacy spent so far.
        in_flight: What the phase's schedule has submitted and not committed.
        server: The server's part.
        clients: Where the clients' states are, one part a host.
        simulated: Simulated totals so far; None without [participation].
    """

    index: RoundIndex
    sampling: SamplingSnapshot
    traffic: Traffic
    evaluations: Sequence[RoundIndex]
    privacy: BudgetSnapshot
    in_flight: Mapping[str, Any]
    server: ServerSnapshot
    clients: Sequence[StoredStates]
    simulated: Simulated | None = None

    def to_json(self) -> str:
        """Returns the snapshot as JSON."""
        plain = _SCHEMA.dump_python(replace(self, privacy=BudgetSnapshot()))  # mode "json" writes infinity as null
        privacy = {"spent": plain_spending(self.privacy.spent), "left_out": list(self.privacy.left_out)}
        return json.dumps(plain | {"privacy": privacy})

    @classmethod
    def from_json(cls, text: str) -> RunSnapshot:
        """Reads the result of `to_json`.

        Raises:
            ValueError: The text is not a snapshot.
        """
        plain = json.loads(text)
        privacy = plain.pop("privacy")
        spent = BudgetSnapshot(spending_from(privacy["spent"]), tuple(privacy["left_out"]))
        return replace(_SCHEMA.validate_python(plain | {"privacy": {}}), privacy=spent)


_SCHEMA: TypeAdapter[RunSnapshot] = TypeAdapter(RunSnapshot)


Complete = Callable[[ServerSnapshot, Sequence[WrittenStates]], RunSnapshot]

LASTS_S = 60.0
"""Age in seconds below which the end of a phase needs no snapshot, since the run is quickly repeated.

Runs with `secure` noise take one anyway, since every repeated round releases its results again.
"""


class Snapshotting:
    """Decides when a snapshot is due, and lets hosts and server write it; one at a time.

    Args:
        scenario: The scenario.
        backend: Hosts and server.
        keepers: The hosts; nobody if no client keeps a state.
        watchdog: Waits for them.
        store: Where they write.
        after: The last round that was committed before.
        clock: A monotonic clock, in seconds.

    Attributes:
        store: Where they write.
    """

    def __init__(
        self,
        scenario: Scenario,
        backend: Backend,
        keepers: Sequence[Worker],
        watchdog: Watchdog,
        store: StateStore,
        after: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scenario, self._backend, self._keepers, self._watchdog = scenario, backend, keepers, watchdog
        self.store, self._clock = store, clock
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

    def begin(self, index: RoundIndex, complete: Complete, models: Sequence[Ref]) -> Ref:
        """Starts writing a snapshot; call `finish` for the previous one first.

        Args:
            index: The last committed round.
            complete: Makes the snapshot from the states of server and clients; see `Progress.snapshot`.
            models: Models that have not been evaluated yet.

        Returns:
            Reference to the answer of the server, once it has begun.
        """
        self._under_way, self._latest, self._latest_round = (index, complete), self._clock(), index.round
        self._asked = []
        begun = self._backend.server.call("snapshot", index, self.store, *models)
        for host in self._keepers:
            host.call("snapshot", index, self.store)
        return begun

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
        return [worker.call("written", index, wait) for worker in (self._backend.server, *self._keepers)]

    def _done(self, parts: Sequence[Any]) -> Event:
        assert self._under_way is not None
        (index, complete), self._under_way = self._under_way, None
        server, *hosts = parts
        return SnapshotTaken(index.config(self._scenario).name, index.round, complete(server, hosts).to_json())

    def _failed(self, error: RayflError) -> Event:
        assert self._under_way is not None
        (index, _), self._under_way = self._under_way, None
        return SnapshotFailed(index.config(self._scenario).name, index.round, str(error))
