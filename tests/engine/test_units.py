"""Hosts take units of a round from each other and merge their sums; neither shows in any result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.algorithms.exchange import Exchange
from rayfl.backends.inline import InlineBackend
from rayfl.engine.assignment import BASE_STEPS, MERGED, SHORTEST_S, UNITS, Units, merge_steps
from rayfl.engine.backend import Ref
from rayfl.engine.events import Event
from rayfl.engine.host import Host
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.reduction import HostAnswers
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.models.tensors import split
from tests.engine.scenes import TINY, prepared, run_on_hosts, without_clock

ROUND = RoundIndex(0, 1, 1)
PHASE: dict[str, Any] = {"name": "p", "rounds": 3, "cohort": 12, "local": {"steps": 2, "batch_size": 8}}


class Call(NamedTuple):
    host: int | str
    method: str
    clients: tuple[int, ...]
    parts: int


class Uneven(InlineBackend):
    """Calls on host 0 seem to return only when none on another host is under way, so others take what waits for it."""

    def __init__(self, run: RunPlan, hosts: int) -> None:
        server = Server(run)
        super().__init__([Host(index, run) for index in range(hosts)], server)
        self.nodes = [index // 4 for index in range(hosts)]
        self.calls: list[Call] = []
        self.committed = server.committed
        self._host_of: dict[int, int | str] = {}
        self._record("server", self.server)
        for index, worker in enumerate(self.hosts):
            self._record(index, worker)

    def _record(self, name: int | str, worker: Any) -> None:
        call = worker.call

        def recorded(method: str, *arguments: Any, returns: int = 1) -> Any:
            refs = call(method, *arguments, returns=returns)
            for ref in refs if returns > 1 else [refs]:
                self._host_of[id(ref)] = name
            groups = arguments[1] if method in ("update", "answer") else []
            parts = sum(isinstance(getattr(one, "value", None), HostAnswers) for one in arguments)
            self.calls.append(Call(name, method, tuple(client for group in groups for client in group), parts))
            return refs

        worker.call = recorded

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        others = [ref for ref in refs if self._host_of.get(id(ref)) != 0]
        return others[:1] or refs


def uneven_run(run: RunPlan, hosts: int) -> tuple[np.ndarray, list[Event], Uneven]:
    backend = Uneven(run, hosts)
    events = list(Scheduler(run, backend).run())
    return split(backend.committed()[1])[0], events, backend


@pytest.mark.parametrize(
    "algorithm",
    [
        "fedavg",
        "scaffold",
        "fedexp",
        {"name": "fedavg", "aggregation": "median", "weighting": "uniform"},
        {"name": "coprefl", "gamma": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_what_hosts_take_from_each_other_does_not_show(algorithm: Any, hosts: int) -> None:
    run = prepared(**TINY, phases=[PHASE | {"algorithm": algorithm}])
    model, events = run_on_hosts(run, 1)
    uneven, uneven_events, backend = uneven_run(run, hosts)
    assert uneven.tobytes() == model.tobytes()
    assert without_clock(uneven_events) == without_clock(events)
    updated = Counter(call.host for call in backend.calls for _ in call.clients)
    if run.phases[0].client_state:
        assert all(host == client % hosts for host, _, clients, _ in backend.calls for client in clients)
    elif hosts < 8:
        assert updated[0] < max(updated[host] for host in range(1, hosts))


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", {"name": "coprefl", "gamma": 0.5}], ids=str)
def test_how_often_a_host_hands_over_its_sum_does_not_show(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepared(**TINY, phases=[PHASE | {"algorithm": algorithm}])
    model, events = run_on_hosts(run, 1)
    monkeypatch.setattr("rayfl.engine.schedules.parallel.UNITS", 2)
    often, often_events, backend = uneven_run(run, 2)
    assert often.tobytes() == model.tobytes()
    assert without_clock(often_events) == without_clock(events)
    answers = [call for call in backend.calls if call.method == "answer"]
    assert len(answers) > 2 * 3 * len(run.phases[0].asked)
    assert any(call.parts for call in answers)  # the sum so far


def test_clients_that_train_at_once_stay_together() -> None:
    run = prepared(**TINY, phases=[PHASE], numerics={"clients_at_once": 3})
    _, _, backend = uneven_run(run, 2)
    model, events = run_on_hosts(run, 1)
    uneven, uneven_events, _ = uneven_run(run, 3)
    assert uneven.tobytes() == model.tobytes()
    assert without_clock(uneven_events) == without_clock(events)
    assert all(len(call.clients) % 3 == 0 for call in backend.calls)


@given(
    st.lists(st.lists(st.integers(1, 50), max_size=40), min_size=1, max_size=6),
    st.one_of(st.none(), st.floats(1e-6, 1.0)),
    st.booleans(),
)
def test_every_group_is_in_one_unit_and_a_share_is_divided_as_finely_as_it_is_worth(
    costs: list[list[int]], step_s: float | None, movable: bool
) -> None:
    shares = [[[100 * host + place] for place in range(len(own))] for host, own in enumerate(costs)]
    cost_of = {
        100 * host + place: cost + BASE_STEPS for host, own in enumerate(costs) for place, cost in enumerate(own)
    }
    units = Units(shares, lambda group: sum(cost_of[client] for client in group), step_s, movable)
    number = len(units)
    taken: list[list[list[list[int]]]] = []
    for host in range(len(shares)):  # each in turn takes all it can get
        taken.append([])
        while unit := units.take(host):
            taken[-1].append(unit)
        assert units.is_done(host)
    assert len(units) == 0
    assert sorted(group for own in taken for unit in own for group in unit) == sorted(
        g for share in shares for g in share
    )
    assert number == sum(map(len, taken))
    if not movable:
        assert [[group for unit in own for group in unit] for own in taken] == shares
        for own, share in zip(taken, shares, strict=True):
            seconds = None if step_s is None else step_s * sum(cost_of[client] for (client,) in share)
            if seconds is None or seconds >= UNITS * SHORTEST_S:
                assert len(own) >= min(len(share), UNITS) / 2  # a group may be as expensive as several units
            elif seconds < 2 * SHORTEST_S:
                assert len(own) == min(len(share), 1)


def test_a_share_of_equal_groups_is_divided_equally() -> None:
    units = Units([[[client] for client in range(20)]], lambda group: 3.0)
    assert [len(unit) for unit in iter(lambda: units.take(0), None)] == [3, 3, 3, 3, 2, 2, 2, 2]


def test_a_host_without_units_takes_the_most_expensive_that_waits() -> None:
    cost = {1: 5.0, 2: 4.0, 3: 9.0, 4: 1.0}
    units = Units([[], [[1], [2]], [[3], [4]]], lambda group: cost[group[0]])
    assert [units.take(0), units.take(0), units.take(2), units.take(2)] == [[[3]], [[1]], [[4]], [[2]]]


def test_a_host_that_has_started_anew_repeats_what_the_sum_lacks() -> None:
    run = prepared(**TINY, phases=[PHASE])
    exchange = Server(run).begin(ROUND, range(6))
    assert isinstance(exchange, Exchange)
    first, second, anew = [[0], [1]], [[2], [3]], Host(1, run)
    host = Host(0, run)
    before = host.update(ROUND, first, exchange)
    usual, report = host.answer(ROUND, second, exchange, {}, first, None, before)
    repeated, again = anew.answer(ROUND, second, exchange, {}, first, None, before)
    assert repeated.totals["delta"].total.tobytes() == usual.totals["delta"].total.tobytes()
    assert (repeated.count, repeated.weight) == (usual.count, usual.weight) == (4, usual.weight)
    assert sorted(before.losses) == [0, 1]
    assert (sorted(report.losses), report.losses) == ([2, 3], again.losses)  # `update` has reported on the others
    alone, whole = Host(2, run).answer(ROUND, first + second, exchange)
    assert alone.totals["delta"].total.tobytes() == usual.totals["delta"].total.tobytes()
    assert whole.losses == {**before.losses, **report.losses}


def test_a_unit_that_runs_twice_counts_once() -> None:
    run = prepared(**TINY, phases=[PHASE])
    exchange, host = Server(run).begin(ROUND, range(6)), Host(0, run)
    reports = [host.update(ROUND, [[0], [1]], exchange) for _ in range(2)]
    assert reports[0].losses == reports[1].losses
    answers, _ = host.answer(ROUND, [[2]], exchange, {}, [[0], [1]])
    assert answers.count == 3


def test_the_server_receives_few_sums_from_many_hosts() -> None:
    run = prepared(**TINY, phases=[PHASE])
    _, _, backend = uneven_run(run, 12)
    merges = [call for call in backend.calls if call.method == "merge"]
    received = [call.parts for call in backend.calls if call.method == "receive"]
    assert len(received) == 3
    assert max(received) <= MERGED
    assert all(call.parts <= 4 for call in merges)  # the hosts of a node
    assert sum(received) + sum(call.parts - 1 for call in merges) == 3 * 12


@given(st.integers(1, 300), st.integers(1, 40))
def test_sums_are_merged_once_each_on_their_node_first(hosts: int, per_node: int) -> None:
    nodes = [host // per_node for host in range(hosts)]
    steps, waiting = merge_steps(range(hosts), nodes), set(range(hosts))
    for step in steps:
        for group in step:
            assert waiting.issuperset(group)
            if len({nodes[host] for host in group}) > 1:
                assert len(group) <= MERGED
                assert len({nodes[host] for host in waiting}) == len(waiting)
        for group in step:
            waiting.difference_update(group[1:])
    assert 1 <= len(waiting) <= MERGED


def test_a_slow_host_costs_less_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time: every call takes its updates' time, ten times as long on host 0."""
    run = prepared(**TINY, phases=[PHASE | {"cohort": 12, "rounds": 2, "local": {"steps": 50, "batch_size": 8}}])

    class Timed(Uneven):
        def __init__(self) -> None:
            super().__init__(run, 2)
            self.now, self.free = 0.0, {0: 0.0, 1: 0.0}
            self.ready: dict[int, float] = {}
            self.kept: list[Any] = []

        def _record(self, name: int | str, worker: Any) -> None:
            super()._record(name, worker)
            call = worker.call

            def timed(method: str, *arguments: Any, returns: int = 1) -> Any:
                refs = call(method, *arguments, returns=returns)
                if isinstance(name, int):
                    start = max(self.now, self.free[name])
                    self.free[name] = start + len(self.calls[-1].clients) * (10.0 if name == 0 else 1.0)
                    for ref in refs if returns > 1 else [refs]:
                        self.ready[id(ref)] = self.free[name]
                        self.kept.append(ref)
                return refs

            worker.call = timed

        def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
            if timeout_s:
                self.now = max(self.now, min(self.ready.get(id(ref), 0.0) for ref in refs))
            return [ref for ref in refs if self.ready.get(id(ref), 0.0) <= self.now]

    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)  # no update is too short to be a unit
    backend = Timed()
    list(Scheduler(run, backend).run())
    updates = Counter(call.host for call in backend.calls for _ in call.clients)
    assert updates[0] + updates[1] == 24
    assert max(backend.free.values()) < 0.75 * 2 * 6 * 10  # with equal shares, host 0 takes 60 a round
