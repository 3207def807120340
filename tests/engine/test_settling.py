"""Rounds that settle one by one on a backend where later rounds are under way, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.backend import Ref
from rayfl.engine.events import Event, RoundDone, RoundSettled
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.models.tensors import split
from tests.algorithms.scene import SIZES
from tests.callbacks.scene import LOCAL, PLAIN, RELAY, tables
from tests.engine.scenes import prepared, run_on_hosts, without_clock


class _Queued:
    """A call that its worker carries out, behind those before it, once somebody waits for it or for a later one."""

    def __init__(self, worker: _Queue, method: str, arguments: tuple[Any, ...], returns: int) -> None:
        self._worker, self._method, self._arguments, self._returns = worker, method, arguments, returns
        self._values: list[Any] | None = None
        self._error: Exception | None = None

    def carry_out(self) -> None:
        try:
            values = [argument.value if isinstance(argument, _Part) else argument for argument in self._arguments]
            made = self._worker.worker.call(self._method, *values, returns=self._returns)
            self._values = [made.value] if self._returns == 1 else [part.value for part in made]
        except Exception as error:  # to be raised where it is looked at
            self._error = error

    def part(self, number: int) -> Any:
        while self._values is None and self._error is None:
            self._worker.queue.pop(0).carry_out()
        if self._error is not None:
            raise self._error
        assert self._values is not None
        return self._values[number]


class _Part:
    def __init__(self, call: _Queued, number: int) -> None:
        self._call, self._number = call, number

    @property
    def value(self) -> Any:
        return self._call.part(self._number)


class _Queue:
    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.queue: list[_Queued] = []

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        queued = _Queued(self, method, arguments, returns)
        self.queue.append(queued)
        parts = [_Part(queued, number) for number in range(returns)]
        return parts[0] if returns == 1 else parts


class _QueueingBackend(InlineBackend):
    """Submits a round while another is under way, and does nothing before it must."""

    rounds_ahead = 1

    def __init__(self, hosts: Sequence[Host], server: Server) -> None:
        super().__init__(hosts, server)
        self.hosts: Any = [_Queue(worker) for worker in self.hosts]
        self.server: Any = _Queue(self.server)

    def get(self, ref: Ref) -> Any:
        return ref.value


def stopped_at(round: int, job: RunPlan) -> tuple[np.ndarray, list[Event]]:
    """The model and the events of a run that is stopped as soon as a round has settled."""
    server = Server(job)
    hosts = [Host(index, job) for index in range(2)]
    scheduler = Scheduler(replace(job, settles=True), _QueueingBackend(hosts, server))
    events: list[Event] = []
    for event in scheduler.run():
        if isinstance(event, RoundDone):
            assert server.committed(event.round)[0] == event.round
        if isinstance(event, RoundSettled) and event.round == round:
            scheduler.stop()
        if not isinstance(event, RoundSettled):
            events.append(event)
    number, model = server.committed(round)
    assert number == round
    return split(model)[0], events


@pytest.mark.parametrize("phase", [PLAIN, RELAY | {"rounds": 4}], ids=["parallel", "relay"])
@pytest.mark.parametrize("every", [1, 100])
def test_updates_under_way_are_dropped_when_a_round_is_made_the_last(phase: dict[str, Any], every: int) -> None:
    model, events = stopped_at(2, prepared(**tables(phases=[phase], evaluation={"every": every})))
    shorter = prepared(**tables(phases=[phase | {"rounds": 2}], evaluation={"every": every}))
    expected, expected_events = run_on_hosts(shorter, 1)
    assert np.array_equal(model, expected)
    assert repr(without_clock(events)) == repr(without_clock(expected_events))


@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_errors_after_the_last_round_are_not_seen_even_where_a_relays_chain_is_broken(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.engine.schedules.relay.LONGEST_CHAIN", 5)  # ends amid the third round, behind client 5
    cohorts = [[0, 1, 2, 3], [1, 2, 3, 4], [5, 0, 1, 2]]
    assert max(map(max, cohorts)) < len(SIZES)
    phase = {"name": "p", "schedule": schedule, "rounds": 3, "cohort": {"explicit": cohorts}, "local": LOCAL}
    fragile = phase | {"algorithm": "tests.backends.ray.broken:Raising"}
    model, _ = stopped_at(2, prepared(**tables(phases=[fragile])))
    expected, _ = run_on_hosts(prepared(**tables(phases=[phase | {"rounds": 2}])), 1)
    assert np.array_equal(model, expected)
