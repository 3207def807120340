"""Hosts that join a run between two rounds, and hosts that it loses, with the bits of a run on one host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.events import Event, HostsChanged, RoundDone, SnapshotTaken
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import FolderStore
from rayfl.errors import LostError
from rayfl.models.tensors import split
from tests.engine.scenes import TINY, cast, continued, prepared, run_on_hosts, without_clock

LOCAL = {"batch_size": 16, "epochs": 1, "lr": 0.1}
PLAIN = {"name": "plain", "rounds": 5, "cohort": 4, "local": LOCAL}
STATEFUL = PLAIN | {"name": "stateful", "algorithm": "scaffold"}
RELAY = PLAIN | {"name": "relay", "schedule": "relay"}
SPEEDS: dict[str, Any] = {"steps_per_s": {"uniform": [1, 4]}}
BUFFERED = PLAIN | {"name": "late", "schedule": "buffered", "concurrency": 3, "buffer": 2}


def run_with_newcomers(job: RunPlan, joins: dict[int, int], store: Path | None) -> tuple[np.ndarray, list[Event]]:
    """The final model and the events of a run on one host, which others join.

    Args:
        job: The run's plan.
        joins: By round, how many hosts join after it.
        store: Where snapshots go; None for none.
    """
    server = Server(job)
    backend = InlineBackend([Host(0, job)], server)
    scheduler, events = Scheduler(job, backend), list[Event]()
    if store is not None:
        scheduler.checkpoint_to(FolderStore(store))
    hosts = 1
    for event in scheduler.run():
        events.append(event)
        if isinstance(event, RoundDone) and (more := joins.get(event.round)):
            newcomers = InlineBackend([Host(hosts + number, job) for number in range(more)], server)
            scheduler.join(newcomers.hosts, newcomers.nodes)
            hosts += more
    return split(server.committed()[1])[0], events


@pytest.mark.parametrize(
    "changes",
    [
        {"phases": [PLAIN, RELAY]},
        {"phases": [STATEFUL, RELAY, STATEFUL | {"name": "again"}]},
        {"phases": [RELAY, PLAIN | {"name": "own", "schedule": "local"}], "resources": {"relay": "spread"}},
        {"phases": [BUFFERED], "participation": SPEEDS},
    ],
    ids=["plain", "stateful", "local", "buffered"],
)
def test_hosts_that_join_change_no_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    job = prepared(**TINY | changes)
    model, events = run_with_newcomers(job, {2: 1, 3: 2}, tmp_path)
    added = [event for event in events if isinstance(event, HostsChanged)]
    assert [(event.round, event.before, event.hosts) for event in added] == [(2, 1, 2), (3, 2, 4)]
    expected, alone = run_on_hosts(prepared(**TINY | changes), 1)
    assert np.array_equal(model, expected)
    same = [event for event in events if not isinstance(event, HostsChanged | SnapshotTaken)]
    assert without_clock(same) == without_clock(alone)


def test_hosts_join_without_snapshots_only_where_no_client_keeps_state() -> None:
    for phase, joined in ((PLAIN, True), (STATEFUL, False)):
        _, events = run_with_newcomers(prepared(**TINY, phases=[phase]), {1: 1}, None)
        assert any(isinstance(event, HostsChanged) for event in events) is joined


def test_newcomers_take_part_from_the_next_round_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worked = dict[int, set[int]]()
    update = Host._updates

    def noted(host: Host, round_index: Any, *arguments: Any, **options: Any) -> Any:
        worked.setdefault(round_index.round, set()).add(host._index)
        return update(host, round_index, *arguments, **options)

    monkeypatch.setattr(Host, "_updates", noted)
    run_with_newcomers(prepared(**TINY, phases=[STATEFUL]), {2: 3}, tmp_path)
    assert worked[1] == worked[2] == {0}
    assert len(worked[3] | worked[4] | worked[5]) > 2


DIED = "worker 0 died"


def events_until_lost(
    job: RunPlan, store: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> tuple[list[Event], list[SnapshotTaken]]:
    """The events of a run on three hosts, one of which dies in a round, and the snapshots among them."""
    update = Host._updates

    def dying(host: Host, round_index: Any, *arguments: Any, **options: Any) -> Any:
        if round_index.round == lost:
            raise LostError(DIED)
        return update(host, round_index, *arguments, **options)

    scheduler, _ = cast(job, hosts=3)
    scheduler.checkpoint_to(FolderStore(store))
    events = list[Event]()
    with monkeypatch.context() as patch:
        patch.setattr(Host, "_updates", dying)
        with pytest.raises(LostError, match=DIED):
            events.extend(scheduler.run())
    return events, [event for event in events if isinstance(event, SnapshotTaken)]


@pytest.mark.parametrize(
    "changes",
    [
        {"phases": [PLAIN]},
        {"phases": [RELAY], "resources": {"relay": "spread"}},
        {"phases": [BUFFERED], "participation": SPEEDS},
    ],
    ids=["plain", "relay", "buffered"],
)
def test_a_run_that_loses_a_host_goes_on_with_the_others_after_its_last_committed_round(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = prepared(**TINY | changes)
    events, (taken,) = events_until_lost(job, tmp_path, monkeypatch, lost=4)
    done = [event.round for event in events if isinstance(event, RoundDone)]
    assert taken.round == done[-1] >= 3
    model, after = continued(job, RunSnapshot.from_json(taken.snapshot), FolderStore(tmp_path), hosts=2)
    assert [event.round for event in after if isinstance(event, RoundDone)] == list(range(done[-1] + 1, 6))
    expected, alone = run_on_hosts(prepared(**TINY | changes), 1)
    assert np.array_equal(model, expected)
    both = [event for event in [*events, *after] if not isinstance(event, SnapshotTaken)]
    assert without_clock(both) == without_clock(alone)


def test_no_snapshot_is_taken_of_states_that_went_with_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, taken = events_until_lost(prepared(**TINY, phases=[STATEFUL]), tmp_path, monkeypatch, lost=4)
    assert [event.round for event in events if isinstance(event, RoundDone)] == [1, 2, 3]
    assert taken == []


def test_a_server_that_does_not_answer_is_asked_for_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, _ = cast(prepared(**TINY, phases=[PLAIN]), hosts=1)
    scheduler.checkpoint_to(FolderStore(tmp_path))
    assert any(isinstance(event, RoundDone) for event in scheduler.run())
    monkeypatch.setattr(InlineBackend, "wait", lambda backend, refs, timeout_s: [])
    assert list(scheduler._save()) == []
