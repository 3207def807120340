"""No relay is one endless chain of references (see `rayfl.engine.backend.LONGEST_CHAIN`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.backend import Ref
from rayfl.engine.host import Host
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.schedules import relay
from rayfl.engine.server import Server
from rayfl.models.tensors import split
from tests.engine.scenes import prepared, run_on_hosts

RELAY = {"name": "cyclic", "schedule": "relay", "rounds": 5, "cohort": 1.0, "local": {"steps": 1, "batch_size": 4}}
LONGEST = 3


class Chained(InlineBackend):
    """Counts the hops since the model was last detached."""

    def __init__(self, hosts: list[Host], server: Server) -> None:
        super().__init__(hosts, server)
        self.chain, self.chains = 0, list[int]()
        for worker in self.hosts:
            self._count(worker)

    def _count(self, worker: Any) -> None:
        call = worker.call

        def counting(method: str, *arguments: Any, returns: int = 1) -> Any:
            self.chain += method == "relay"
            return call(method, *arguments, returns=returns)

        worker.call = counting

    def detached(self, ref: Ref) -> Ref:
        self.chains.append(self.chain)
        self.chain = 0
        return super().detached(ref)


@pytest.mark.parametrize("rounds", [1, 5], ids=["within a round", "over rounds"])
def test_a_travelling_model_is_detached_before_its_chain_gets_too_long(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LONGEST_CHAIN", LONGEST)
    job = prepared(phases=[RELAY | {"rounds": rounds}])
    server = Server(job)
    backend = Chained([Host(index, job) for index in range(2)], server)
    run = Scheduler(job, backend)
    for _ in run.run():
        pass
    assert backend.chains
    assert all(chain == LONGEST for chain in backend.chains)
    assert backend.chain <= LONGEST
    expected, _ = run_on_hosts(job, 1)
    assert np.array_equal(split(server.committed()[1])[0], expected)
