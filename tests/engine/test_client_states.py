from __future__ import annotations

import pytest
import torch

from rayfl.engine.client_states import ClientStates
from rayfl.errors import RayflError


def test_a_state_is_kept_only_when_its_round_is_committed() -> None:
    states = ClientStates()
    states.stage(3, {"drift": torch.ones(2)})
    assert torch.equal(states.open(3, 0)["drift"], torch.ones(2)), "a later exchange of the round sees it"
    states.commit()
    assert torch.equal(states.open(3, 1)["drift"], torch.ones(2))
    assert states.open(4, 1) == {}


def test_a_repeated_visit_starts_from_the_committed_state() -> None:
    states = ClientStates()
    states.open(0, 0)["drift"] = torch.ones(2)
    assert states.open(0, 0) == {}
    states.stage(0, {"drift": torch.zeros(2)})
    states.commit()
    states.open(0, 1)["drift"].add_(1)
    assert torch.equal(states.open(0, 1)["drift"], torch.zeros(2))


def test_a_host_that_lost_its_states_says_so() -> None:
    with pytest.raises(RayflError, match="restarted after 2 committed rounds"):
        ClientStates().open(0, 2)
