"""The last round's model is the committed one before the events are over, however late the server's commits are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.backend import Ref
from rayfl.engine.events import RoundDone
from rayfl.engine.host import Host
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from tests.engine.scenes import FEDERATED, PRETRAIN, TINY, prepared


class _Later:
    """A reference to a call that is made when somebody waits for it."""

    def __init__(self, worker: Any, arguments: tuple[Any, ...]) -> None:
        self._worker, self._arguments = worker, arguments

    @property
    def value(self) -> Any:
        return self._worker.call(*self._arguments).value


class _LateServer:
    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.commits: list[_Later] = []

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        if method != "commit":
            return self._worker.call(method, *arguments, returns=returns)
        self.commits.append(_Later(self._worker, (method, *arguments)))
        return self.commits[-1]


class _LateBackend(InlineBackend):
    """Nothing hurries the server: a commit is carried out when it is waited for, behind those before it."""

    def __init__(self, hosts: Sequence[Host], server: Server) -> None:
        super().__init__(hosts, server)
        self.server: Any = _LateServer(self.server)

    def get(self, ref: Ref) -> Any:
        if isinstance(ref, _Later):
            while self.server.commits:
                self.server.commits.pop(0).value  # noqa: B018 - carried out by being looked at
            return None
        return super().get(ref)


@pytest.mark.parametrize("phases", [[PRETRAIN], [FEDERATED], [PRETRAIN, FEDERATED]], ids=["relay", "parallel", "both"])
def test_the_committed_round_is_the_last_one_when_the_events_are_over(phases: list[dict[str, Any]]) -> None:
    job = prepared(**TINY, phases=phases)
    server = Server(job)
    backend = _LateBackend([Host(0, job)], server)
    for event in Scheduler(job, backend).run():
        if isinstance(event, RoundDone):  # whoever stops the run here is given this round's model
            assert server.committed()[0] == event.round
    assert server.committed()[0] == sum(phase["rounds"] for phase in phases)
