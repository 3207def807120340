from __future__ import annotations

import pytest
import torch

from rayfl.algorithms.state import Scope
from rayfl.engine.client_states import ClientStates
from rayfl.errors import RayflError

CPU = torch.device("cpu")
IN_PHASE: dict[str, Scope] = {"drift": "phase", "previous": "phase"}


def test_a_state_is_kept_only_when_its_round_is_committed() -> None:
    states = ClientStates()
    states.stage(3, {"drift": torch.ones(2)})
    assert torch.equal(states.open(3, 0, 0, 1, CPU)["drift"], torch.ones(2)), "a later exchange of the round sees it"
    states.commit([3], IN_PHASE)
    assert torch.equal(states.open(3, 0, 1, 0, CPU)["drift"], torch.ones(2))
    assert states.open(4, 0, 1, 0, CPU) == {}


def test_a_repeated_client_update_starts_from_the_committed_state() -> None:
    states = ClientStates()
    states.open(0, 0, 0, 0, CPU)["drift"] = torch.ones(2)
    assert states.open(0, 0, 0, 0, CPU) == {}
    states.stage(0, {"drift": torch.zeros(2)})
    states.commit([0], IN_PHASE)
    states.open(0, 0, 1, 0, CPU)["drift"].add_(1)
    assert torch.equal(states.open(0, 0, 1, 0, CPU)["drift"], torch.zeros(2))


def test_a_host_that_lost_its_states_says_so() -> None:
    with pytest.raises(RayflError, match="restarted after 2 committed rounds"):
        ClientStates().open(0, 0, 2, 0, CPU)


def test_a_state_that_is_a_view_of_the_resident_model_is_copied() -> None:
    states, resident = ClientStates(), torch.ones(2)
    states.stage(0, {"previous": resident})
    resident.zero_()
    assert torch.equal(states.open(0, 0, 0, 1, CPU)["previous"], torch.ones(2))


def test_a_host_that_lost_what_was_staged_does_not_commit_or_go_on() -> None:
    with pytest.raises(RayflError, match="lost"):
        ClientStates().commit([4], IN_PHASE)
    with pytest.raises(RayflError, match="lost"):
        ClientStates().open(4, 0, 0, 1, CPU)
