from __future__ import annotations

import pytest
import torch

from rayfl.algorithms.state import Scope
from rayfl.engine.client_states import ClientStates
from rayfl.errors import RayflError
from rayfl.planning.round_index import RoundIndex

CPU = torch.device("cpu")
ROUND = RoundIndex(0, 1, 1)
IN_PHASE: dict[str, Scope] = {"drift": "phase", "previous": "phase"}


def test_a_state_is_kept_only_when_its_round_is_committed() -> None:
    states = ClientStates()
    states.open(3, ROUND, 0, 0, CPU)
    states.stage(3, {"drift": torch.ones(2)})
    assert torch.equal(states.open(3, ROUND, 1, 0, CPU)["drift"], torch.ones(2)), (
        "a later exchange of the round sees it"
    )
    states.commit([3], IN_PHASE)
    assert torch.equal(states.open(3, ROUND, 0, 1, CPU)["drift"], torch.ones(2))
    assert states.open(4, ROUND, 0, 1, CPU) == {}


def test_a_repeated_client_update_starts_from_the_committed_state() -> None:
    states = ClientStates()
    states.open(0, ROUND, 0, 0, CPU)["drift"] = torch.ones(2)
    assert states.open(0, ROUND, 0, 0, CPU) == {}
    states.stage(0, {"drift": torch.zeros(2)})
    states.commit([0], IN_PHASE)
    states.open(0, ROUND, 0, 1, CPU)["drift"].add_(1)
    assert torch.equal(states.open(0, ROUND, 0, 1, CPU)["drift"], torch.zeros(2))


def test_a_host_that_lost_its_states_says_so() -> None:
    with pytest.raises(RayflError, match="restarted after 2 committed rounds"):
        ClientStates().open(0, ROUND, 0, 2, CPU)


def test_a_state_that_is_a_view_of_the_resident_model_is_copied() -> None:
    states, resident = ClientStates(), torch.ones(2)
    states.open(0, ROUND, 0, 0, CPU)
    states.stage(0, {"previous": resident})
    resident.zero_()
    assert torch.equal(states.open(0, ROUND, 1, 0, CPU)["previous"], torch.ones(2))


def test_a_host_that_lost_what_was_staged_does_not_commit_or_go_on() -> None:
    with pytest.raises(RayflError, match="lost"):
        ClientStates().commit([4], IN_PHASE)
    with pytest.raises(RayflError, match="lost"):
        ClientStates().open(4, ROUND, 1, 0, CPU)


def test_what_only_its_round_needs_may_be_lost_with_the_host_and_does_not_pile_up() -> None:
    states = ClientStates()
    states.open(1, ROUND, 0, None, CPU)
    states.stage(1, {"loss": torch.ones(1)})
    assert torch.equal(states.open(1, ROUND, 1, None, CPU)["loss"], torch.ones(1))
    assert ClientStates().open(1, ROUND, 1, None, CPU) == {}
    assert states.open(2, RoundIndex(0, 2, 2), 0, None, CPU) == {}
    assert states.open(1, RoundIndex(0, 2, 2), 1, None, CPU) == {}


def test_a_snapshot_has_nothing_of_an_earlier_phase() -> None:
    """A host that no client of the new phase has reached yet still holds it."""
    states = ClientStates()
    states.stage(3, {"previous": torch.ones(2), "account": torch.ones(1)})
    states.commit([3], {"previous": "phase", "account": "run"})
    assert states.snapshot(0)[3].keys() == {"phase/previous", "run/account"}
    assert states.snapshot(1)[3].keys() == {"run/account"}
