from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.state.client_states import ClientStates
from rayfl.engine.state.committed_rounds import KEPT
from rayfl.engine.state.segments import StateSegments
from rayfl.engine.state.state_store import DamagedStateError
from rayfl.errors import RayflError
from rayfl.local.client_state import ClientState
from rayfl.local.state import Scope
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import everyone

CPU = torch.device("cpu")
FIRST, SECOND, THIRD = (RoundIndex(0, round, round) for round in (1, 2, 3))
NEXT_PHASE = RoundIndex(1, 4, 1)
IN_PHASE: dict[str, Scope] = {"drift": "phase", "previous": "phase"}
NEW: dict[int, int] = {}


New = Callable[[], ClientStates]


@pytest.fixture(params=[0, 2**20], ids=["on disk", "in memory"])
def new(request: pytest.FixtureRequest) -> New:
    return partial(ClientStates, request.param)


def after(new: New, *rounds: RoundIndex, client: int = 3) -> ClientStates:
    """States of one client that took part in these rounds."""
    states = new()
    for number, index in enumerate(rounds):
        states.open(client, index, 0, {client: rounds[number - 1].round} if number else NEW, CPU)
        states.stage(client, index.round, {"drift": torch.full((2,), float(index.round))})
        states.commit(index, [client], IN_PHASE)
    return states


def test_a_state_is_kept_only_when_its_round_is_committed(new: New) -> None:
    states = new()
    states.open(3, FIRST, 0, NEW, CPU)
    states.stage(3, 1, {"drift": torch.ones(2)})
    assert torch.equal(states.open(3, FIRST, 1, NEW, CPU)["drift"], torch.ones(2)), "a later exchange sees it"
    states.commit(FIRST, [3], IN_PHASE)
    assert torch.equal(states.open(3, SECOND, 0, {3: 1}, CPU)["drift"], torch.ones(2))
    assert states.open(4, SECOND, 0, {3: 1}, CPU) == {}


def test_a_repeated_client_update_starts_from_the_committed_state(new: New) -> None:
    states = new()
    states.open(0, FIRST, 0, NEW, CPU)["drift"] = torch.ones(2)
    assert states.open(0, FIRST, 0, NEW, CPU) == {}
    states.stage(0, 1, {"drift": torch.zeros(2)})
    states.commit(FIRST, [0], IN_PHASE)
    states.open(0, SECOND, 0, {0: 1}, CPU)["drift"].add_(1)
    assert torch.equal(states.open(0, SECOND, 0, {0: 1}, CPU)["drift"], torch.zeros(2))


@pytest.mark.parametrize(
    ("held", "committed", "complaint"),
    [
        ((), {3: 2}, "after round 2 is lost: its worker was restarted and no longer has it$"),
        ((FIRST,), {3: 2}, "after round 2 is lost: its worker only has the state after round 1$"),
        (
            (FIRST, SECOND),
            {3: 1},
            "is out of order: its worker already has the state after round 2, but this call expects the state after",
        ),
        (
            (FIRST,),
            {},
            "is out of order: its worker already has the state after round 1, but this call expects no state yet",
        ),
    ],
    ids=["missing", "older", "newer", "one too many"],
)
def test_a_state_of_another_round_than_expected_is_rejected(
    held: tuple[RoundIndex, ...], committed: dict[int, int], complaint: str, new: New
) -> None:
    states = after(new, *held)
    with pytest.raises(RayflError, match=f"the state of client 3 {complaint}"):
        states.open(3, THIRD, 0, committed, CPU)
    with pytest.raises(RayflError, match=f"the state of client 3 {complaint}"):
        states.kept(3, 0, committed, CPU)


def test_a_state_of_the_expected_round_and_none_of_a_new_client_are_good(new: New) -> None:
    states = after(new, FIRST, SECOND)
    assert torch.equal(states.kept(3, 0, {3: 2}, CPU)["drift"], torch.full((2,), 2.0))
    assert states.kept(4, 0, {3: 2}, CPU) == {}


def test_rounds_in_which_a_client_takes_no_part_do_not_matter(new: New) -> None:
    """A phase that is cut short has rounds of which no host hears."""
    states = after(new, FIRST)
    assert states.open(3, RoundIndex(0, 90, 90), 0, {3: 1}, CPU).keys() == {"drift"}


def test_a_state_that_is_a_view_of_the_resident_model_is_copied(new: New) -> None:
    states, resident = new(), torch.ones(2)
    states.open(0, FIRST, 0, NEW, CPU)
    states.stage(0, 1, {"previous": resident})
    resident.zero_()
    assert torch.equal(states.open(0, FIRST, 1, NEW, CPU)["previous"], torch.ones(2))


def test_a_host_that_lost_what_was_staged_does_not_commit_or_go_on(new: New) -> None:
    with pytest.raises(RayflError, match="client 4 after round 1 is lost"):
        new().commit(FIRST, [4], IN_PHASE)
    with pytest.raises(RayflError, match="client 4 after exchange 0 of round 1 is lost"):
        new().open(4, FIRST, 1, NEW, CPU)


def test_a_commit_that_is_repeated_does_nothing(new: New) -> None:
    states = after(new, FIRST, SECOND)
    states.commit(SECOND, [3], IN_PHASE)
    assert torch.equal(states.kept(3, 0, {3: 2}, CPU)["drift"], torch.full((2,), 2.0))


def test_state_of_one_round_may_be_lost_with_the_host_and_does_not_pile_up(new: New) -> None:
    states = new()
    states.open(1, FIRST, 0, None, CPU)
    states.stage(1, 1, {"loss": torch.ones(1)})
    assert torch.equal(states.open(1, FIRST, 1, None, CPU)["loss"], torch.ones(1))
    assert new().open(1, FIRST, 1, None, CPU) == {}
    assert states.open(2, SECOND, 0, None, CPU) == {}
    assert states.open(1, SECOND, 1, None, CPU) == {}
    assert 1 not in states._staged


def test_nothing_that_was_staged_for_a_round_or_earlier_outlives_its_commit(new: New) -> None:
    states = new()
    for index, client in ((FIRST, 1), (SECOND, 2)):
        states.open(client, index, 0, NEW, CPU)
        states.stage(client, index.round, {"drift": torch.ones(1)})
    states.commit(FIRST, [1], IN_PHASE)
    assert list(states._staged) == [SECOND.round]
    states.stage(1, FIRST.round, {"drift": torch.ones(1)})  # by an update that was repeated after the commit
    states.commit(SECOND, [2], IN_PHASE)
    assert not states._staged


def test_states_of_rounds_open_at_once_are_kept_apart(new: New) -> None:
    states = new()
    for index, client in ((FIRST, 1), (SECOND, 2)):
        states.open(client, index, 0, NEW, CPU)
        states.stage(client, index.round, {"drift": torch.full((1,), float(client))})
    states.commit(FIRST, [1], IN_PHASE)
    states.commit(SECOND, [2], IN_PHASE)
    assert [float(states.kept(client, 0, {1: 1, 2: 2}, CPU)["drift"]) for client in (1, 2)] == [1.0, 2.0]


def test_a_snapshot_has_nothing_of_an_earlier_phase(new: New) -> None:
    """A host that no client of the new phase has reached yet still holds it."""
    states, store = new(), MemoryStore()
    states.stage(3, 1, {"previous": torch.ones(2), "account": torch.ones(1)})
    states.commit(FIRST, [3], {"previous": "phase", "account": "run"})
    parts, kept = states.snapshot(0, store)()
    assert kept.tolist() == [(3, KEPT.index("phase"), 1), (3, KEPT.index("run"), 1)]
    parts, _ = states.snapshot(1, store)()
    ((client, scope, _, arrays),) = StateSegments().read(parts, everyone, store)
    assert (client, scope, [*arrays]) == (3, "run", ["account"])


def test_state_kept_through_the_run_is_that_of_the_last_round_that_used_it(new: New) -> None:
    states = new()
    states.stage(3, 1, {"previous": torch.ones(2), "account": torch.ones(1)})
    states.commit(FIRST, [3], {"previous": "phase", "account": "run"})
    kept = states.open(3, NEXT_PHASE, 0, {3: 1}, CPU)
    assert kept.keys() == {"account"}
    states.stage(3, 4, kept | {"drift": torch.ones(1)})
    states.commit(NEXT_PHASE, [3], {"drift": "phase"})
    assert states.kept(3, 1, {3: 4}, CPU).keys() == {"account", "drift"}
    assert states.kept(3, 2, {3: 4}, CPU).keys() == {"account"}


def test_a_client_that_leaves_nothing_keeps_nothing_of_before(new: New) -> None:
    states = after(new, FIRST)
    states.open(3, SECOND, 0, {3: 1}, CPU)
    states.stage(3, 2, {})
    states.commit(SECOND, [3], IN_PHASE)
    assert states.open(3, THIRD, 0, {3: 2}, CPU) == {}


def test_states_that_were_restored_are_of_their_rounds(new: New) -> None:
    store = MemoryStore()
    parts, _ = after(new, FIRST, SECOND).snapshot(0, store)()
    states = new()
    states.restore(parts, everyone, 0, store)
    assert torch.equal(states.open(3, THIRD, 0, {3: 2}, CPU)["drift"], torch.full((2,), 2.0))
    with pytest.raises(RayflError, match="after round 3 is lost: its worker only has the state after round 2"):
        states.open(3, RoundIndex(0, 4, 4), 0, {3: 3}, CPU)


def test_a_store_in_memory_forgets_what_is_removed() -> None:
    store = MemoryStore()
    kept, gone = (store.write({"drift": np.full(2, value)}) for value in (1.0, 2.0))
    store.remove([gone.place, "never/there"])
    assert store.held([kept, gone]) == {kept.place}
    with pytest.raises(DamagedStateError, match="missing from this store"):
        store.read(gone)


def test_an_undeclared_name_is_refused_also_if_it_looks_like_a_buffer_of_a_declared_one() -> None:
    state = ClientState({}, frozenset({"control"}))
    for name in ("controll", "control@typo"):
        with pytest.raises(RayflError, match=f"client state '{name}' is not declared"):
            state[name] = torch.zeros(1)
        with pytest.raises(RayflError, match=f"client state '{name}' is not declared"):
            state[name]
    state.keep_buffer("control", "norm.seen", torch.ones(1))
    assert state.kept_buffer("control", "norm.seen") == 1
    assert state.kept_buffer("control", "norm.other") is None
    with pytest.raises(RayflError, match="client state 'personal' is not declared"):
        state.keep_buffer("personal", "norm.seen", torch.ones(1))
