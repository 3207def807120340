"""When a snapshot is due, by a clock of the test's own, and what its writer says meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from rayfl.config.scenario import Scenario
from rayfl.engine.events import SnapshotFailed
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.state.snapshots import LASTS_S, Snapshotting
from rayfl.engine.state.state_store import SnapshotWriter
from rayfl.errors import RayflError
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import TINY, tables

NEVER = {"minutes": 0, "rounds": 0, "ends": False}
PHASES = [{"name": name, "rounds": 4, "cohort": 2} for name in ("first", "second")]


class Worker:
    """Does nothing with what it is asked."""

    def call(self, *asked: Any) -> None: ...


class Backend:
    server, hosts = Worker(), (Worker(),)


class Times:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def snapshotting(times: Times, after: int = 0, secure: bool = False, **settings: Any) -> Snapshotting:
    dp = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "secure": True}
    phases = [phase | ({"local": {"dp": dp}} if secure else {}) for phase in PHASES]
    scenario = Scenario.from_tables(tables(**TINY, phases=phases, checkpoint=NEVER | settings))
    nothing: Any = None
    backend: Any = Backend()
    return Snapshotting(scenario, backend, backend.hosts, nothing, MemoryStore(), after, times)


def index(round: int) -> RoundIndex:
    return RoundIndex((round - 1) // 4, round, (round - 1) % 4 + 1)


def due(snapshots: Snapshotting) -> list[int]:
    return [round for round in range(1, 9) if snapshots.due(index(round))]


def begin(snapshots: Snapshotting, round: int) -> None:
    nothing: Any = None
    snapshots.begin(index(round), nothing, [])


def test_a_snapshot_is_due_so_many_rounds_after_the_last_and_not_beside_another() -> None:
    assert due(snapshotting(Times())) == []
    snapshots = snapshotting(Times(), rounds=3)
    assert due(snapshots) == [3, 4, 5, 6, 7, 8]
    assert due(snapshotting(Times(), after=2, rounds=3)) == [5, 6, 7, 8]
    begin(snapshots, 4)
    assert due(snapshots) == []
    snapshots._under_way = None
    assert due(snapshots) == [7, 8]


def test_a_snapshot_is_due_so_many_minutes_after_the_last() -> None:
    times = Times()
    snapshots = snapshotting(times, minutes=2.0)
    for seconds, expected in ((119.5, False), (120.0, True)):
        times.now = 1000.0 + seconds
        assert snapshots.due(index(1)) == expected
    begin(snapshots, 1)
    snapshots._under_way = None
    for seconds, expected in ((239.5, False), (240.0, True)):
        times.now = 1000.0 + seconds
        assert snapshots.due(index(2)) == expected


def test_the_end_of_a_phase_is_due_once_a_run_lasts_even_beside_another() -> None:
    times = Times()
    snapshots = snapshotting(times, ends=True)
    times.now = 1000.0 + LASTS_S - 0.5
    assert due(snapshots) == []
    for lasts in (LASTS_S, LASTS_S + 0.5):
        times.now = 1000.0 + lasts
        assert due(snapshots) == [4, 8]
    begin(snapshots, 1)
    assert due(snapshots) == [4, 8]


def test_a_run_that_cannot_be_repeated_is_kept_at_the_end_of_each_phase_however_short_it_is() -> None:
    assert due(snapshotting(Times(), secure=True, ends=True)) == [4, 8]
    assert due(snapshotting(Times(), secure=True)) == []


@pytest.mark.parametrize("when", ["collect", "finish"])
def test_a_snapshot_that_cannot_be_written_is_reported_and_the_next_one_taken(when: str) -> None:
    class Full(Backend):
        def wait(self, asked: list[Any], _: float) -> list[Any]:
            return asked

        def get(self, _: Any) -> None:
            raise RayflError("the disk is full")

    class Watchdog:
        def wait(self, *_: Any) -> Iterator[None]:
            yield
            raise RayflError("the disk is full")

    snapshots = snapshotting(Times(), rounds=1)
    full: Any = Full()
    watchdog: Any = Watchdog()
    snapshots._backend, snapshots._watchdog = full, watchdog
    begin(snapshots, 2)
    assert [event for event in getattr(snapshots, when)() if event] == [SnapshotFailed("first", 2, "the disk is full")]
    assert snapshots.due(index(3))
    assert list(getattr(snapshots, when)()) == []


def test_a_writer_says_nothing_before_it_is_done_and_tells_which_snapshot_is_lost() -> None:
    writer, go_on = SnapshotWriter[str](), Event()

    def write() -> str:
        go_on.wait()
        return "manifest"

    with pytest.raises(RayflError, match="the snapshot of round 3 is lost: a worker that was writing it was restarted"):
        writer.written(3, wait=False)
    writer.begin(3, write)
    assert writer.written(3, wait=False) is None
    with pytest.raises(RayflError, match="the snapshot of round 2 is lost"):
        writer.written(2, wait=False)
    go_on.set()
    assert writer.written(3, wait=True) == "manifest"
    assert writer.written(3, wait=False) == "manifest"
