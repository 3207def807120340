"""A host that dies between the exchanges of a round and comes back empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayfl.algorithms.exchange import Exchange
from rayfl.engine.host import Host
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.reduction import reduce_hosts
from rayfl.engine.server import Server
from rayfl.errors import LostError
from tests.engine.scenes import FEDERATED, TINY, prepared

ROUND = RoundIndex(0, 1, 1)
COHORT = [0, 1, 2]


def second_answers(phase: dict[str, Any], host_dies: bool) -> dict[str, np.ndarray]:
    """The sums of the second exchange of a round."""
    job = prepared(**TINY, phases=[FEDERATED | phase])
    server, host = Server(job), Host(0, job)
    first = server.begin(ROUND, COHORT)
    groups = [[client] for client in COHORT]
    _, second = server.receive(ROUND, None, host.answer(ROUND, groups, first)[0])
    assert isinstance(second, Exchange)
    if host_dies:
        host = Host(0, job)
    answers, _ = host.answer(ROUND, [[client] for client in COHORT], second)
    return dict(reduce_hosts([answers], job.scenario.numerics.fraction_bits).sums)


@pytest.mark.parametrize("phase", [{"algorithm": "qfedavg"}, {"algorithm": "qfedsgd", "local": {"lr": 0.1}}])
def test_state_kept_between_exchanges_is_computed_again_with_the_same_bits(phase: dict[str, Any]) -> None:
    whole, again = second_answers(phase, host_dies=False), second_answers(phase, host_dies=True)
    assert whole.keys() == again.keys()
    assert all(np.array_equal(whole[name], again[name]) for name in whole)


def test_state_kept_from_round_to_round_is_not_computed_again() -> None:
    phase = {"algorithm": {"name": "qfedavg", "penalties": ["contrastive"]}}
    with pytest.raises(LostError, match="the state of client 0 after exchange 0 of round 1 is lost"):
        second_answers(phase, host_dies=True)
