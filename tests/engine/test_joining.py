"""Hosts that join a run between two rounds, with the bits of a run on one host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.events import Event, HostsAdded, RoundDone, SnapshotTaken
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.state.state_store import FolderStore
from rayfl.models.tensors import split
from tests.engine.scenes import TINY, prepared, run_on_hosts, without_clock

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
    added = [event for event in events if isinstance(event, HostsAdded)]
    assert [(event.round, event.before, event.hosts) for event in added] == [(2, 1, 2), (3, 2, 4)]
    expected, alone = run_on_hosts(prepared(**TINY | changes), 1)
    assert np.array_equal(model, expected)
    same = [event for event in events if not isinstance(event, HostsAdded | SnapshotTaken)]
    assert without_clock(same) == without_clock(alone)


def test_hosts_join_without_snapshots_only_where_no_client_keeps_state() -> None:
    for phase, joined in ((PLAIN, True), (STATEFUL, False)):
        _, events = run_with_newcomers(prepared(**TINY, phases=[phase]), {1: 1}, None)
        assert any(isinstance(event, HostsAdded) for event in events) is joined


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
