"""Segments hold many clients' states in few files, and only what changed is written again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rayfl.engine.state import segments
from rayfl.engine.state.committed_rounds import KEPT
from rayfl.engine.state.segments import StateSegments, StoredStates, states_of, stored_states
from rayfl.engine.state.state_store import DamagedStateError, FolderStore, StateStore
from rayfl.local.state import Scope
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import everyone

VALUES = 25


def arrays_of(rounds: Mapping[int, int]) -> Mapping[int, Mapping[str, np.ndarray]]:
    """A state of 100 bytes for each client, which its number and round give."""
    return {client: {"drift": np.full(VALUES, client + round / 1000, np.float32)} for client, round in rounds.items()}


class Host:
    """The states of a host, which change from round to round."""

    def __init__(self, store: StateStore) -> None:
        self.store, self.segments, self.rounds = store, StateSegments(), dict[int, int]()

    def snapshot(self) -> StoredStates:
        states, arrays = states_of({"phase": self.rounds, "run": {}}), arrays_of(self.rounds)
        return self.segments.write(states, lambda client, scope: arrays[client], self.store)


def read(part: StoredStates, store: StateStore) -> dict[int, tuple[int, float]]:
    """Round and value of every client."""
    found = {}
    for client, scope, round, arrays in StateSegments().read([part], everyone, store):
        assert scope == "phase"
        assert arrays["drift"].shape == (VALUES,)
        found[client] = round, float(arrays["drift"][0])
    return found


def expected(rounds: Mapping[int, int]) -> dict[int, tuple[int, float]]:
    return {client: (round, float(np.float32(client + round / 1000))) for client, round in rounds.items()}


def size(store: StateStore, part: StoredStates) -> list[int]:
    return [len(store.read(segment)["states"]) for segment in part.segments]


def test_any_sequence_of_rounds_is_read_back_and_writes_little_more_than_what_changed() -> None:
    rng, store = np.random.default_rng(0), MemoryStore()
    host = Host(store)
    written = changed = 0
    before: set[str] = set()
    for round in range(1, 60):
        clients = rng.choice(200, size=rng.integers(1, 40), replace=False).tolist()
        host.rounds |= dict.fromkeys(clients, round)
        part = host.snapshot()
        assert read(part, store) == expected(host.rounds)
        written += sum(len(store.read(one)["states"]) for one in part.segments if one.place not in before)
        before = {one.place for one in part.segments}
        changed += 4 * VALUES * len(clients)
        assert len(part.segments) <= segments.SMALL_SEGMENTS + 1
        assert sum(size(store, part)) <= 2 * 4 * VALUES * len(host.rounds) + 4 * VALUES * 40
    assert written < 3 * changed


def test_large_states_fill_segments_that_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 10 * 4 * VALUES)
    store = MemoryStore()
    host = Host(store)
    host.rounds = dict.fromkeys(range(35), 1)
    first = host.snapshot()
    assert size(store, first) == [1000, 1000, 1000, 500]
    host.rounds |= dict.fromkeys(range(4), 2)  # fewer than half of the first segment
    second = host.snapshot()
    assert set(second.segments) - set(first.segments) == {second.segments[-1]}
    assert size(store, second) == [1000, 1000, 1000, 500, 400]
    host.rounds |= dict.fromkeys(range(4, 7), 3)  # by now more than half: the rest of it moves
    third = host.snapshot()
    assert first.segments[0] not in third.segments
    assert read(third, store) == expected(host.rounds)


def test_equal_states_share_segments_and_change_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 10 * 4 * VALUES)
    store, kept = MemoryStore(), StateSegments()
    drifts = dict.fromkeys(range(45), 1.0)
    for changed in ({}, {3: 2.0}, {7: 2.0, 20: 3.0}):
        drifts.update(changed)
        rounds = {client: 1 if drift == 1.0 else 2 for client, drift in drifts.items()}
        part = kept.write(
            states_of({"phase": rounds, "run": {}}),
            lambda client, _: {"drift": np.full(VALUES, drifts[client], np.float32)},
            store,
        )
        assert len(part.segments) <= 4  # 45 states would fill five
        assert {client: drift for client, (_, drift) in read(part, store).items()} == drifts


def test_a_segment_that_was_removed_is_written_again(tmp_path: Path) -> None:
    host = Host(FolderStore(tmp_path))
    host.rounds = {1: 1, 2: 1}
    (segment,) = host.snapshot().segments
    (tmp_path / segment.place).unlink()
    host.rounds |= {3: 2}
    assert read(host.snapshot(), host.store) == expected({1: 1, 2: 1, 3: 2})


def is_own(number: int, clients: np.ndarray) -> np.ndarray:
    own: np.ndarray = clients % 4 == number
    return own


def test_hosts_that_share_segments_after_a_resume_leave_them_as_they_are() -> None:
    store = MemoryStore()
    one = Host(store)
    one.rounds = dict.fromkeys(range(8), 1)
    part = one.snapshot()
    parts = []
    for number in range(4):
        host = Host(store)
        own = partial(is_own, number)
        host.rounds = {client: round for client, _, round, _ in host.segments.read([part], own, store)}
        assert sorted(host.rounds) == [number, number + 4]
        parts.append(host.snapshot())
        assert parts[-1].segments == part.segments
    assert np.array_equal(stored_states(parts, store), stored_states([part], store)[[0, 4, 1, 5, 2, 6, 3, 7]])
    again = Host(store)
    found = {client: round for client, _, round, _ in again.segments.read(parts, everyone, store)}
    assert found == one.rounds
    again.rounds = found
    assert again.snapshot() == part, "byte for byte"


def test_states_of_several_scopes_kinds_and_empty_ones_keep_shape_and_type() -> None:
    store, own = MemoryStore(), StateSegments()
    kept: dict[tuple[int, Scope], dict[str, np.ndarray]] = {
        (7, "phase"): {"count": np.array(2**40 + 1), "rows": np.arange(6, dtype=np.int16).reshape(2, 3).T},
        (7, "run"): {"flag": np.array(True), "none": np.empty((0, 3), np.float64)},
        (9, "phase"): {},
    }
    states = states_of({"phase": {9: 3, 7: 2}, "run": {7: 1}})
    assert states.tolist() == [(7, 0, 2), (7, 1, 1), (9, 0, 3)]
    for client, scope, _, arrays in StateSegments().read(
        [own.write(states, lambda *key: kept[key], store)], everyone, store
    ):
        assert arrays.keys() == kept[client, scope].keys()
        for name, array in arrays.items():
            assert (array.dtype, array.shape) == (kept[client, scope][name].dtype, kept[client, scope][name].shape)
            assert np.array_equal(array, kept[client, scope][name])


def test_a_segment_cut_short_is_found_and_named(tmp_path: Path) -> None:
    host = Host(FolderStore(tmp_path))
    host.rounds = dict.fromkeys(range(5), 1)
    part = host.snapshot()
    file = tmp_path / part.segments[0].place
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedStateError, match=rf"{file.name} is damaged: its digest differs"):
        read(part, host.store)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("segment", 1, "it counts 1 for 'segment', and names others"),
        ("kind", -1, "it counts 1 for 'kind', and names others"),
        ("scope", 2, "it counts 2 for 'scope', and names others"),
        ("offset", 401, "is shorter than the index of its states says"),
        ("offset", -1, "is shorter than the index of its states says"),
    ],
)
def test_an_index_that_points_outside_is_refused(column: str, value: int, message: str) -> None:
    host = Host(MemoryStore())
    host.rounds = dict.fromkeys(range(5), 1)
    part = host.snapshot()
    content = host.store.read(part.index)
    rows = content["rows"].view(segments._ROW)
    rows[column][3] = value
    index = host.store.write({"rows": rows.view(np.uint8), "kinds": content["kinds"]})
    with pytest.raises(DamagedStateError, match=message):
        read(replace(part, index=index), host.store)


@pytest.mark.parametrize("kinds", [[[["drift", "|O", [1]]]], [[["drift", "<f4", [-1]]]], [[["drift"]]], "no list", 3])
def test_an_index_cannot_name_anything_but_arrays_of_numbers(kinds: object) -> None:
    host = Host(MemoryStore())
    host.rounds = {1: 1}
    part = host.snapshot()
    content = host.store.read(part.index)
    made = np.frombuffer(json.dumps(kinds).encode(), np.uint8)
    with pytest.raises(DamagedStateError, match="is damaged: "):
        read(replace(part, index=host.store.write({"rows": content["rows"], "kinds": made})), host.store)


def test_an_index_takes_thirty_two_bytes_a_state() -> None:
    host = Host(MemoryStore())
    host.rounds = dict.fromkeys(range(1000), 1)
    assert len(host.store.read(host.snapshot().index)["rows"]) == 32 * 1000
    assert KEPT == ("phase", "run"), "an index stores positions in it"
