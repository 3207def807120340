"""Runs that are stopped on a backend where later rounds are under way, without Ray; rounds settle one by one or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.backend import Ref
from rayfl.engine.events import Event, RoundDone, RoundSettled, SnapshotTaken
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.models.tensors import split
from tests.algorithms.scene import SIZES
from tests.callbacks.scene import LOCAL, PLAIN, RELAY, STATEFUL, tables
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import by_kind, cast, prepared, run_on_hosts, without_clock


class _Queued:
    """A call that its worker carries out, behind those before it, once somebody waits for it or for a later one."""

    def __init__(self, worker: _Queue, method: str, arguments: tuple[Any, ...], returns: int) -> None:
        self._worker, self._method, self._arguments, self._returns = worker, method, arguments, returns
        self._values: list[Any] | None = None
        self._error: Exception | None = None

    def carry_out(self) -> None:
        try:
            values = [argument.value if isinstance(argument, _Part) else argument for argument in self._arguments]
            made = self._worker.worker.call(self._method, *values, returns=self._returns)
            self._values = [made.value] if self._returns == 1 else [part.value for part in made]
        except Exception as error:  # to be raised where it is looked at
            self._error = error

    def part(self, number: int) -> Any:
        while self._values is None and self._error is None:
            self._worker.queue.pop(0).carry_out()
        if self._error is not None:
            raise self._error
        assert self._values is not None
        return self._values[number]


class _Part:
    def __init__(self, call: _Queued, number: int) -> None:
        self._call, self._number = call, number

    @property
    def value(self) -> Any:
        return self._call.part(self._number)


class _Queue:
    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.queue: list[_Queued] = []

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        queued = _Queued(self, method, arguments, returns)
        self.queue.append(queued)
        parts = [_Part(queued, number) for number in range(returns)]
        return parts[0] if returns == 1 else parts


class _QueueingBackend(InlineBackend):
    """Submits a round while another is under way, and does nothing before it must."""

    rounds_ahead = 1

    def __init__(self, hosts: Sequence[Host], server: Server) -> None:
        super().__init__(hosts, server)
        self.hosts: Any = [_Queue(worker) for worker in self.hosts]
        self.server: Any = _Queue(self.server)

    def get(self, ref: Ref) -> Any:
        return ref.value


def stopped_at(round: int, job: RunPlan) -> tuple[np.ndarray, list[Event]]:
    """The model and the events of a run that is stopped as soon as a round has settled."""
    server = Server(job)
    hosts = [Host(index, job) for index in range(2)]
    scheduler = Scheduler(replace(job, settles=True), _QueueingBackend(hosts, server))
    events: list[Event] = []
    for event in scheduler.run():
        if isinstance(event, RoundDone):
            assert server.committed(event.round)[0] == event.round
        if isinstance(event, RoundSettled) and event.round == round:
            scheduler.stop(event.round)
        if not isinstance(event, RoundSettled):
            events.append(event)
    number, model = server.committed(round)
    assert number == round
    return split(model)[0], events


@pytest.mark.parametrize("phase", [PLAIN, RELAY | {"rounds": 4}], ids=["parallel", "relay"])
@pytest.mark.parametrize("every", [1, 100])
def test_updates_under_way_are_dropped_when_a_round_is_made_the_last(phase: dict[str, Any], every: int) -> None:
    model, events = stopped_at(2, prepared(**tables(phases=[phase], evaluation={"every": every})))
    shorter = prepared(**tables(phases=[phase | {"rounds": 2}], evaluation={"every": every}))
    expected, expected_events = run_on_hosts(shorter, 1)
    assert np.array_equal(model, expected)
    assert repr(without_clock(events)) == repr(without_clock(expected_events))


@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_errors_after_the_last_round_are_not_seen_even_where_a_relays_chain_is_broken(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.engine.schedules.relay.LONGEST_CHAIN", 5)  # ends amid the third round, behind client 5
    cohorts = [[0, 1, 2, 3], [1, 2, 3, 4], [5, 0, 1, 2]]
    assert max(map(max, cohorts)) < len(SIZES)
    phase = {"name": "p", "schedule": schedule, "rounds": 3, "cohort": {"explicit": cohorts}, "local": LOCAL}
    fragile = phase | {"algorithm": "tests.backends.ray.broken:Raising"}
    model, _ = stopped_at(2, prepared(**tables(phases=[fragile])))
    expected, _ = run_on_hosts(prepared(**tables(phases=[phase | {"rounds": 2}])), 1)
    assert np.array_equal(model, expected)


def places(events: Sequence[Event]) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.round) for event in events]


def asked_after(round: int, job: RunPlan) -> tuple[np.ndarray, list[Event]]:
    """The model and the events of a run that is asked to stop at the end of a round, where rounds do not settle."""
    server = Server(job)
    scheduler = Scheduler(job, _QueueingBackend([Host(index, job) for index in range(2)], server))
    events: list[Event] = []
    for event in scheduler.run():
        events.append(event)
        if isinstance(event, RoundDone) and event.round == round:
            scheduler.stop(round + 1)
    number, model = server.committed(round + 1)
    assert number == round + 1
    return split(model)[0], events


BUFFERED: dict[str, Any] = {**PLAIN, "schedule": "buffered", "cohort": 12, "concurrency": 4, "buffer": 2}


@pytest.mark.parametrize("every", [1, 100])
@pytest.mark.parametrize(
    "phase", [PLAIN, STATEFUL, RELAY | {"rounds": 4}, BUFFERED], ids=["plain", "stateful", "relay", "buffered"]
)
def test_a_request_makes_the_next_round_the_last_which_alone_settles(phase: dict[str, Any], every: int) -> None:
    changes: dict[str, Any] = {"evaluation": {"every": every}}
    if phase is BUFFERED:
        changes["participation"] = {"steps_per_s": {"lognormal": [10.0, 1.0]}}
    model, events = asked_after(2, prepared(**tables(phases=[phase], **changes)))
    expected, expected_events = run_on_hosts(prepared(**tables(phases=[phase | {"rounds": 3}], **changes)), 1)
    assert np.array_equal(model, expected)
    (settled,) = [event for event in events if isinstance(event, RoundSettled)]
    assert settled.round == 3
    assert repr(by_kind(events)) == repr(by_kind(expected_events))


def test_rounds_run_ahead_of_evaluations_unless_they_settle() -> None:
    job = prepared(**tables(phases=[PLAIN], evaluation={"every": 1}))
    found = {}
    for settles in (False, True):
        hosts = [Host(index, job) for index in range(2)]
        scheduler = Scheduler(replace(job, settles=settles), _QueueingBackend(hosts, Server(job)))
        found[settles] = [place for place in places(list(scheduler.run())) if place[0] != "RoundSettled"]
    assert found[True] == [(kind, round) for round in range(1, 5) for kind in ("RoundDone", "Evaluated")]
    assert found[False][:3] == [("RoundDone", 1), ("RoundDone", 2), ("Evaluated", 1)]
    assert sorted(found[False]) == sorted(found[True])


@pytest.mark.parametrize("settles", [False, True])
def test_a_run_that_goes_on_from_the_last_round_only_evaluates_it(settles: bool) -> None:
    job = prepared(**tables(phases=[PLAIN], evaluation={"every": 100}, checkpoint={"rounds": 1}))
    store, taken = MemoryStore(), list[RunSnapshot]()
    scheduler, _ = cast(job, 2, settles)
    scheduler.checkpoint_to(store)
    for event in scheduler.run():
        if isinstance(event, RoundSettled if settles else RoundDone) and event.round == 2:
            scheduler.stop(2)
        if isinstance(event, SnapshotTaken):
            taken.append(RunSnapshot.from_json(event.snapshot))
    again, server = cast(job, 3, settles)
    again.restore(taken[-1], store)
    again.stop(2)
    assert places(list(again.run())) == [("Evaluated", 2)]
    assert server.committed()[0] == 2
