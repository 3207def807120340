"""A run that a callback stops at some round ends as a run of that many rounds does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rayfl.engine.events import Evaluated, Event, RoundDone, RoundSettled
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.state.segments import in_order, stored_states
from tests.callbacks.scene import PLAIN, RELAY, STATEFUL, StopAt, figures, model_of, run, same, tables
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, prepared, snapshot_of, without_clock


@pytest.mark.parametrize("phase", [PLAIN, STATEFUL, RELAY | {"rounds": 4}], ids=["plain", "stateful", "relay"])
def test_model_and_metrics_are_those_of_a_run_of_as_many_rounds(tmp_path: Path, phase: dict[str, Any]) -> None:
    shorter = run(tmp_path, phases=[phase | {"rounds": 3}])
    for once_evaluated in (False, True):
        stopped = run(tmp_path, phases=[phase], callbacks=[StopAt(round=3, once_evaluated=once_evaluated)])
        assert same(model_of(stopped), model_of(shorter))
        assert figures(stopped) == figures(shorter)


def test_a_round_that_is_not_due_is_evaluated_where_it_becomes_the_last(tmp_path: Path) -> None:
    shorter = run(tmp_path, phases=[PLAIN | {"rounds": 3}], evaluation={"every": 100})
    stopped = run(tmp_path, phases=[PLAIN], evaluation={"every": 100}, callbacks=[StopAt(round=3)])
    assert figures(stopped) == figures(shorter)
    assert stopped.metrics["round"].to_pylist() == [3]


def test_the_models_that_clients_keep_are_scored_as_of_the_last_round(tmp_path: Path) -> None:
    phase = STATEFUL | {"algorithm": "ditto"}
    evaluation = {"every": 100, "client_model": "personal"}
    shorter = run(tmp_path, phases=[phase | {"rounds": 3}], evaluation=evaluation)
    stopped = run(tmp_path, phases=[phase], evaluation=evaluation, callbacks=[StopAt(round=3)])
    assert figures(stopped) == figures(shorter)
    scores = [pq.read_table(result.directory / "clients.parquet") for result in (stopped, shorter)]
    assert scores[0].num_rows > 0
    assert scores[0].equals(scores[1])


def test_the_status_says_who_stopped_it_when_and_why_and_no_phase_follows(tmp_path: Path) -> None:
    stopped = run(tmp_path, named=[{"name": "tests.callbacks.scene:StopAt", "round": 2}])
    assert stopped.metrics["phase"].to_pylist() == ["cyclic", "cyclic"]
    status = json.loads((stopped.directory / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("finished", None)
    assert status["stopped"] == {"callback": "tests.callbacks.scene:StopAt", "reason": "as told", "round": 2}
    assert (status["committed_rounds"], status["rounds"], status["model"]["round"]) == (2, 6, 2)


def test_a_run_that_comes_to_its_end_was_not_stopped(tmp_path: Path) -> None:
    whole = run(tmp_path, callbacks=[StopAt(round=6)])
    assert json.loads((whole.directory / "status.json").read_text())["stopped"] is None


def driven(scheduler: Scheduler, stop_at: int) -> list[Event]:
    events = []
    for event in scheduler.run():
        events.append(event)
        if isinstance(event, RoundSettled) and event.round == stop_at:
            scheduler.stop(event.round)
    return events


@pytest.mark.parametrize("hosts", [1, 3])
def test_client_states_and_the_servers_are_those_of_the_last_round(hosts: int) -> None:
    scheduler, _ = cast(prepared(**tables(phases=[STATEFUL | {"rounds": 3}])), 1)
    list(scheduler.run())
    store = MemoryStore()
    expected = snapshot_of(scheduler, store)
    scheduler, _ = cast(prepared(**tables(phases=[STATEFUL])), hosts, settles=True)
    driven(scheduler, stop_at=3)
    found = snapshot_of(scheduler, store)
    assert (found.index, found.server) == (expected.index, expected.server)
    states, expected_states = (in_order(stored_states(one.clients, store)) for one in (found, expected))
    assert len(states) > 0
    assert np.array_equal(states, expected_states)
    kept, expected_kept = kept_by_clients(found, store), kept_by_clients(expected, store)
    for client, arrays in expected_kept.items():
        assert all(np.array_equal(kept[client][name], array) for name, array in arrays.items())


def test_every_round_settles_after_all_of_its_events_and_before_those_of_the_next() -> None:
    job = prepared(**tables(evaluation={"every": 2}))
    scheduler, _ = cast(job, 2, settles=True)
    told = [(type(event), event.round) for event in scheduler.run()]
    expected: list[tuple[type, int]] = []
    for round in range(1, 7):
        evaluated = [(Evaluated, round)] if round % 2 == 0 else []
        expected += [(RoundDone, round), *evaluated, (RoundSettled, round)]
    assert told == expected


def test_rounds_settle_only_where_they_are_asked_to_and_the_rest_of_the_events_is_the_same() -> None:
    job = prepared(**tables())
    plain, _ = cast(job, 1)
    settling, _ = cast(job, 1, settles=True)
    events = list(plain.run())
    assert not [event for event in events if isinstance(event, RoundSettled)]
    others = [event for event in settling.run() if not isinstance(event, RoundSettled)]
    assert repr(without_clock(others)) == repr(without_clock(events))
