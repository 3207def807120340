"""A snapshot between rounds is the whole truth: a run goes on from it, on any number of hosts, with the same bits."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.assignment import home
from rayfl.engine.events import Event, RoundDone, SnapshotTaken
from rayfl.engine.host import Host
from rayfl.engine.state.committed_rounds import KEPT
from rayfl.engine.state.segments import in_order, stored_states
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import FolderStore, StateStore
from rayfl.errors import LostError, RayflError
from rayfl.models.tensors import split
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import (
    cast,
    continued,
    kept_by_clients,
    prepared,
    run_on_hosts,
    snapshot_after,
    snapshot_of,
    without_clock,
)

LOCAL = {"epochs": 2, "batch_size": 4, "lr": 0.1, "momentum": 0.5, "lr_decay": 0.9}
PHASES: list[dict[str, Any]] = [
    {"name": "cyclic", "schedule": "relay", "rounds": 2, "cohort": 3, "order": "no_repeat", "algorithm": "moon"},
    {"name": "scaffold", "rounds": 3, "cohort": 5, "algorithm": "scaffold", "eval_model": "all"},
    {"name": "compressed", "rounds": 2, "cohort": 5, "transforms": [{"name": "top_k", "share": 0.2}]},
    {"name": "fedadam", "rounds": 3, "cohort": 4, "algorithm": "fedadam", "eval_model": "average"},
    {"name": "qfedavg", "rounds": 2, "cohort": 4, "algorithm": "qfedavg"},
    {"name": "coprefl", "rounds": 3, "cohort": 4, "algorithm": "coprefl", "server_training": {"steps": 2, "lr": 0.1}},
    {
        "name": "meta_sgd",
        "rounds": 3,
        "cohort": 4,
        "local": {"lr": 0.3},
        "algorithm": {"name": "fedmeta", "variant": "meta_sgd", "split": "round", "meta_lr": 0.2},
    },
    {
        "name": "perfedavg",
        "rounds": 2,
        "cohort": 4,
        "local": {"epochs": 2, "batch_size": 4, "lr": 0.1},
        "algorithm": {"name": "perfedavg", "variant": "hessian_free"},
    },
    {"name": "again", "schedule": "relay", "rounds": 2, "cohort": 3, "order": "no_repeat"},
]
"""Relays, whose clients may keep state; control variates; residuals; states of a round; what a server learns."""
ROUNDS = sum(phase["rounds"] for phase in PHASES)
SCENARIO: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people", "server_share": 0.1},
    "model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3},
    "phases": [{"local": LOCAL} | phase for phase in PHASES],
    "evaluation": {"every": 3},
}

JOB = prepared(**SCENARIO)


@dataclass(frozen=True)
class Recorded:
    """A whole run on two hosts, and a snapshot after each of its rounds: the first is at 1."""

    model: np.ndarray
    events: list[Event]
    snapshots: list[RunSnapshot | None]
    store: StateStore


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    scheduler, server = cast(JOB, 2)
    events: list[Event] = []
    snapshots: list[RunSnapshot | None] = [None]
    store = MemoryStore()
    for event in scheduler.run():
        events.append(event)
        if isinstance(event, RoundDone):
            snapshots.append(snapshot_of(scheduler, store))
    return Recorded(split(server.committed()[1])[0], events, snapshots, store)


def taken(recorded: Recorded, round: int) -> RunSnapshot:
    snapshot = recorded.snapshots[round]
    assert snapshot is not None
    return snapshot


def told_after(round: int, events: list[Event]) -> list[Event]:
    """What is left to be told once a round was reported as done."""
    done = next(n for n, event in enumerate(events) if isinstance(event, RoundDone) and event.round == round)
    return events[done + 1 :]


def check_equal(snapshot: RunSnapshot, store: StateStore, other: RunSnapshot, other_store: StateStore) -> None:
    """Checks that two snapshots hold the same, however states are spread over hosts and files."""
    assert described(replace(snapshot, clients=())) == described(replace(other, clients=()))
    ours, theirs = (in_order(stored_states(one.clients, its)) for one, its in ((snapshot, store), (other, other_store)))
    assert np.array_equal(ours, theirs)
    kept, others = kept_by_clients(snapshot, store), kept_by_clients(other, other_store)
    assert kept.keys() == others.keys()
    for client, arrays in kept.items():
        assert arrays.keys() == others[client].keys()
        assert all(np.array_equal(array, others[client][name]) for name, array in arrays.items())


@pytest.mark.parametrize("round", range(1, ROUNDS + 1))
def test_a_run_that_goes_on_from_any_round_on_other_hosts_comes_to_the_same_state(
    round: int, recorded: Recorded
) -> None:
    """Two rounds later nothing is different: states by digest, draws, traffic, what is still to be told."""
    scheduler, _ = cast(JOB, hosts=(1, 3)[round % 2])
    scheduler.restore(taken(recorded, round), recorded.store)
    later = min(round + 2, ROUNDS)
    told: list[Event] = []
    if later > round:
        for event in scheduler.run():
            told.append(event)
            if isinstance(event, RoundDone) and event.round == later:
                break
    assert repr(without_clock(told)) == repr(without_clock(told_after(round, recorded.events)[: len(told)]))
    check_equal(snapshot_of(scheduler, recorded.store), recorded.store, taken(recorded, later), recorded.store)


@pytest.mark.parametrize("round", [1, 9])
def test_a_run_that_goes_on_on_other_hosts_ends_with_the_same_bits(round: int, recorded: Recorded) -> None:
    scheduler, server = cast(JOB, 3)
    scheduler.restore(taken(recorded, round), recorded.store)
    assert repr(without_clock(list(scheduler.run()))) == repr(without_clock(told_after(round, recorded.events)))
    number, resumed = server.committed()
    assert number == ROUNDS
    assert np.array_equal(split(resumed)[0], recorded.model)


def test_a_second_phase_of_the_same_algorithm_does_not_inherit_clients_states() -> None:
    """Its first cohort may leave hosts untouched, which then still hold those of the phase before."""
    moon = {"name": "first", "schedule": "relay", "rounds": 2, "cohort": 5, "algorithm": "moon", "local": LOCAL}
    again = {**moon, "name": "second", "schedule": "parallel", "cohort": {"explicit": [[0], [1, 2, 3, 4]]}}
    job = prepared(**SCENARIO | {"phases": [moon, again]})
    whole, _ = run_on_hosts(job, 1)
    snapshot, store = snapshot_after(job, 3, 3)
    assert stored_states(snapshot.clients, store).tolist() == [(0, KEPT.index("phase"), 3)]
    assert np.array_equal(continued(job, snapshot, store, 2)[0], whole)


def test_a_snapshot_is_not_changed_by_what_comes_after_it() -> None:
    """It may be written to disk while the run goes on, and restored more than once."""
    job, store = prepared(**SCENARIO | {"phases": SCENARIO["phases"][:2]}), MemoryStore()
    scheduler, server = cast(job, 2)
    events = scheduler.run()
    next(event for event in events if isinstance(event, RoundDone) and event.round == 4)
    snapshot = snapshot_of(scheduler, store)
    before = described(snapshot)
    list(events)
    whole = split(server.committed()[1])[0]
    for hosts in (1, 3):
        assert np.array_equal(continued(job, snapshot, store, hosts)[0], whole)
        assert described(snapshot) == before


def described(value: Any) -> Any:
    """The same as nested lists; fails on anything but plain data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        assert type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [type(value).__name__, described(fields)]
    if isinstance(value, dict):
        assert all(isinstance(key, str | int) for key in value)
        return [[key, described(item)] for key, item in sorted(value.items(), key=repr)]
    if isinstance(value, list | tuple):
        return [described(item) for item in value]
    assert value is None or type(value) in (int, float, str), f"{type(value)} is not plain data"
    return value


def test_a_snapshot_is_plain_data(recorded: Recorded) -> None:
    """Numbers and strings in dictionaries and frozen records, arrays by their digest: nothing that needs pickle."""
    for round in range(1, ROUNDS + 1):
        described(taken(recorded, round))


def test_states_in_a_snapshot_are_keyed_by_client_whatever_host_they_were_on(recorded: Recorded) -> None:
    store = MemoryStore()
    check_equal(*snapshot_after(JOB, 4, 1, store), taken(recorded, 4), recorded.store)
    clients = kept_by_clients(taken(recorded, 5), recorded.store)
    assert len(clients) > 5
    assert all(state.keys() == {"phase/control", "phase/last"} for state in clients.values())


def test_a_later_snapshot_writes_only_what_changed_since(tmp_path: Path) -> None:
    cohorts = [[0, 1, 2, 3], [4], [1]]
    phase = {"name": "p", "rounds": 3, "cohort": {"explicit": cohorts}, "algorithm": "scaffold", "local": LOCAL}
    scheduler, _ = cast(prepared(**SCENARIO | {"phases": [phase]}), 2)
    written: list[int] = []
    for event in scheduler.run():
        if isinstance(event, RoundDone):
            store = CountingStore(tmp_path)
            parts = snapshot_of(scheduler, store).clients
            segments = {segment for part in parts for segment in part.segments if segment.place in store.written}
            written.append(sum(len(store.read(segment)["states"]) for segment in segments))
            states = stored_states(parts, store).tolist()
    assert written[0] > 0
    assert [size / written[0] for size in written] == [1, 1 / 4, 1 / 4]
    assert {client: round for client, _, round in states} == {0: 1, 1: 3, 2: 1, 3: 1, 4: 2}


def test_no_snapshot_is_taken_of_a_host_that_came_back_without_its_states() -> None:
    """The rounds since do not need them, so that no update tells of the loss."""
    here, there = 0, next(client for client in range(1, 8) if home(client, 2) != home(0, 2))
    cohorts = [[here, there], [there], [there], [here]]
    phase = {"name": "p", "rounds": 4, "cohort": {"explicit": cohorts}, "algorithm": "scaffold", "local": LOCAL}
    job = prepared(**SCENARIO | {"phases": [phase], "checkpoint": {"rounds": 1}})
    scheduler, _ = cast(job, 2)
    scheduler.checkpoint_to(MemoryStore())
    taken: list[int] = []

    def follow() -> None:
        for event in scheduler.run():
            if isinstance(event, SnapshotTaken):
                taken.append(event.round)
            if isinstance(event, RoundDone) and event.round == 2:
                hosts = scheduler._backend.hosts
                assert isinstance(hosts, list)
                hosts[home(here, 2)] = InlineBackend([Host(0, job)], Mock()).hosts[0]

    with pytest.raises(LostError, match="the state of client 0 after round 1 is lost: "):
        follow()
    assert all(round < 2 for round in taken)


class CountingStore(FolderStore):
    """Notes what is hashed and written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written: list[str] = []

    def _put(self, place: str, content: bytes) -> None:
        self.written.append(place)
        super()._put(place, content)


def test_the_first_snapshot_of_a_run_that_goes_on_writes_only_what_changed_since(tmp_path: Path) -> None:
    """On other hosts, as after a resume or a recovery."""
    cohorts = [[0, 1, 2, 3, 5], [4, 1]]
    phase = {"name": "p", "rounds": 2, "cohort": {"explicit": cohorts}, "algorithm": "scaffold", "local": LOCAL}
    job = prepared(**SCENARIO | {"phases": [phase]})
    before, _ = snapshot_after(job, 1, 2, FolderStore(tmp_path))
    scheduler, _ = cast(job, 3)
    scheduler.restore(before, FolderStore(tmp_path))
    next(event for event in scheduler.run() if isinstance(event, RoundDone))
    store = CountingStore(tmp_path)
    after = snapshot_of(scheduler, store)
    anew = {segment for part in after.clients for segment in part.segments if segment.place in store.written}
    whole = {segment for part in before.clients for segment in part.segments}
    size = sum(len(store.read(segment)["states"]) for segment in whole) // 5
    assert sum(len(store.read(segment)["states"]) for segment in anew) == 2 * size, "those of clients 4 and 1"
    server = {stored.place for stored in after.server.states}
    assert len(stored_states(after.clients, store)) == 6
    assert {*store.written} == {segment.place for segment in anew} | server | {
        part.index.place for part in after.clients
    }


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_state_that_is_damaged_or_missing_is_named(damage: str, tmp_path: Path) -> None:
    snapshot, _ = snapshot_after(JOB, 4, 2, FolderStore(tmp_path))
    file = tmp_path / snapshot.clients[1].segments[0].place
    if damage == "changed":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(bytes(content))
    else:
        file.unlink()
    scheduler, _ = cast(JOB, 3)
    wrong = "is damaged: its digest" if damage == "changed" else "cannot read the state"
    with pytest.raises(RayflError, match=wrong) as error:
        scheduler.restore(snapshot, FolderStore(tmp_path))
    assert str(file) in str(error.value)


def test_a_store_of_one_process_does_not_travel_to_another() -> None:
    with pytest.raises(RayflError, match="use a FolderStore with workers in other processes"):
        pickle.dumps(MemoryStore())


def test_a_store_keeps_shape_and_type_of_numbers_and_flags() -> None:
    store = MemoryStore()
    arrays = {
        "flag": np.array(True),
        "count": np.array(2**40 + 1),
        "rows": np.arange(6, dtype=np.int16).reshape(2, 3).T,
    }
    read = store.read(store.write(arrays))
    assert {name: (array.shape, array.dtype) for name, array in read.items()} == {
        name: (array.shape, array.dtype) for name, array in arrays.items()
    }
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())
