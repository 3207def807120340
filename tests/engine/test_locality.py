"""Clients go to the nodes that have their fragments of prepared data, and results do not show it."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.backends.inline import InlineBackend
from rayfl.engine.assignment import Units, longest_first
from rayfl.engine.host import Host
from rayfl.engine.locality import near_data, ranked
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.slices import Slice, Slices
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from tests.data.prepared.scenes import OWNER, data, from_disk, small_fragments, stored
from tests.data.prepared.scenes import prepared as written
from tests.engine.scenes import prepared, run_on_hosts, without_clock
from tests.engine.test_units import uneven_run

ROUNDS = 24


class Shape(NamedTuple):
    """Nodes with equal workers, whose disks hold half as many fragments again as their part of all."""

    nodes: int
    workers: int
    fragments: int
    clients: int
    cohort: int


def hit_rate(shape: Shape, near: bool) -> tuple[float, float]:
    """Which part of client updates ran where their fragment was, in the later rounds; and how busy workers were.

    Workers differ in speed, keep the fragments used last, and take units from each other.
    """
    rng = np.random.default_rng(0)
    fragment = (np.arange(shape.clients) * shape.fragments // shape.clients).tolist()
    steps = rng.integers(20, 60, shape.clients).tolist()
    nodes = [worker // shape.workers for worker in range(shape.nodes * shape.workers)]
    seconds = 1 + 0.1 * rng.random(len(nodes))
    disks = [OrderedDict[int, None]() for _ in range(shape.nodes)]
    hits, busy = Counter[bool](), []
    for number in range(ROUNDS):
        cohort = sorted(rng.choice(shape.clients, shape.cohort, replace=False).tolist(), key=lambda one: -steps[one])
        groups, costs = [[client] for client in cohort], [steps[client] for client in cohort]
        if near:
            shares = near_data(groups, costs, [fragment[client] for client in cohort], nodes)
        else:
            shares = longest_first(groups, costs, len(nodes))
        units = Units(shares, lambda group: float(steps[group[0]]), nodes=nodes if near else ())
        waiting, ends = [(0.0, worker) for worker in range(len(nodes))], []
        while waiting:
            now, worker = heapq.heappop(waiting)
            if not (unit := units.take(worker)):
                ends.append(now)
                continue
            disk = disks[nodes[worker]]
            for (client,) in unit:
                now += steps[client] * seconds[worker]
                if number >= ROUNDS // 3:
                    hits[fragment[client] in disk] += 1
                disk[fragment[client]] = None
                disk.move_to_end(fragment[client])
                while len(disk) > 1.5 * shape.fragments / shape.nodes:
                    disk.popitem(last=False)
            heapq.heappush(waiting, (now, worker))
        busy.append(sum(ends) / len(ends) / max(ends))
    return hits[True] / hits.total(), sum(busy) / len(busy)


@pytest.mark.parametrize("shape", [Shape(4, 2, 64, 4000, 200), Shape(8, 4, 200, 10000, 400)])
def test_nine_of_ten_updates_find_their_fragment_and_workers_are_as_busy_as_without_regard_to_it(shape: Shape) -> None:
    (hits, busy), (chance, busy_without) = hit_rate(shape, near=True), hit_rate(shape, near=False)
    assert hits > 0.9
    assert chance < 0.5
    assert busy > busy_without - 0.02


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 9)), min_size=1, max_size=80),
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
)
def test_every_group_is_assigned_once_and_no_node_gets_much_more_than_its_part(
    groups: list[tuple[int, int]], nodes: list[int]
) -> None:
    costs, fragments = [cost for cost, _ in groups], [fragment for _, fragment in groups]
    assigned = near_data([[client] for client in range(len(groups))], costs, fragments, nodes)
    assert len(assigned) == len(nodes)
    assert sorted(client for own in assigned for (client,) in own) == list(range(len(groups)))
    total, most = sum(costs) + len(costs), max(costs) + 1
    for node in set(nodes):
        of_node = [own for own, at in zip(assigned, nodes, strict=True) if at == node]
        loads = [sum(costs[client] + 1 for (client,) in own) for own in of_node]
        assert sum(loads) <= total * len(of_node) / len(nodes) + most + 1e-6
        assert max(loads) - min(loads) <= most


def test_the_same_fragment_goes_to_the_same_node_whatever_else_is_in_the_cohort() -> None:
    nodes, homes = ["a", "a", "b", "c", "c"], dict[int, set[str]]()
    for seed in range(20):
        fragments = np.random.default_rng(seed).permutation(40)[:20].tolist()
        assigned = near_data([[fragment] for fragment in fragments], [3] * 20, fragments, nodes)
        for own, node in zip(assigned, nodes, strict=True):
            for (fragment,) in own:
                homes.setdefault(fragment, set()).add(node)
    assert Counter(map(len, homes.values()))[1] > 10


def first(nodes: Sequence[str], shares: Sequence[float]) -> np.ndarray:
    names: np.ndarray = np.array([*nodes])[ranked(np.arange(5000), nodes, np.array(shares))[:, 0]]
    return names


def test_a_node_that_leaves_moves_only_its_own_fragments_and_a_larger_one_has_more() -> None:
    before, after = first("abcd", [0.2, 0.2, 0.2, 0.4]), first("abd", [0.25, 0.25, 0.5])
    assert ((before == after) == (before != "c")).all()
    counts = Counter(before.tolist())
    for node, share in zip("abcd", (0.2, 0.2, 0.2, 0.4), strict=True):
        assert abs(counts[node] / 5000 - share) < 5 * np.sqrt(share * (1 - share) / 5000)


@pytest.mark.usefixtures(small_fragments.__name__)
@pytest.mark.parametrize(
    "tables", [{}, {"validation_share": 0.3, "server_share": 0.1}, {"owners": {"places": [[2, 6]]}}]
)
def test_the_fragment_of_a_client_is_where_the_index_says(tables: dict[str, Any], tmp_path: Path) -> None:
    manifest = written(data("images"), tmp_path)
    store = stored(from_disk(tmp_path, **tables))
    assert store.client_names is not None
    ends = np.cumsum([part.rows for part in manifest.sets["train"].fragments])
    sizes = Counter(f"site {owner}" for owner in OWNER.tolist())
    names = sorted(sizes)
    starts = np.cumsum([0, *map(sizes.__getitem__, names)])
    expected = [int((ends <= starts[names.index(name)]).sum()) for name in store.client_names]
    assert store.fragments is not None
    assert store.fragments.tolist() == expected
    assert len(set(expected)) > 1
    assert stored(data("images")).fragments is None


def job_of(folder: Path, **changes: Any) -> RunPlan:
    written(data("images"), folder)
    phase = {"name": "p", "rounds": 3, "cohort": 6, "local": {"lr": 0.1, "batch_size": 4, "epochs": 1}}
    tables = {"name": "prepared", "options": {"path": str(folder)}, "validation_share": 0.2}
    return prepared(data=tables, model={"name": "mlp", "hidden": [3]}, phases=[phase], **changes)


@pytest.mark.usefixtures(small_fragments.__name__)
def test_hosts_of_several_nodes_that_take_units_from_each_other_have_the_bits_of_one(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    whole, events = run_on_hosts(job, 1)
    for hosts in (2, 3, 9):  # four to a node
        model, told, backend = uneven_run(job, hosts)
        assert np.array_equal(model, whole)
        assert without_clock(told) == without_clock(events)
        assert len({call.host for call in backend.calls if call.clients}) > 1


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=60), st.integers(1, 7))
def test_evaluations_of_every_kind_are_divided_evenly_and_in_order(kinds: list[tuple[int, bool]], hosts: int) -> None:
    slices = Slices.of(
        Slice(start, start + 1, 0, personalized, f"set {number}") for start, (number, personalized) in enumerate(kinds)
    )
    host = slices.in_blocks(hosts)
    for kind in set(kinds):
        of_kind = [int(host[place]) for place, one in enumerate(kinds) if one == kind]
        assert of_kind == sorted(of_kind)
        counts = [of_kind.count(number) for number in range(hosts)]
        assert max(counts) - min(counts) <= 1


@pytest.mark.usefixtures(small_fragments.__name__)
def test_a_node_evaluates_the_same_consecutive_samples_in_every_round(tmp_path: Path) -> None:
    job = job_of(tmp_path, evaluation={"every": 1, "batch_size": 2})
    server, seen = Server(job), list[tuple[int, list[tuple[str, int]]]]()
    hosts = [Host(number, job) for number in range(4)]
    for number, host in enumerate(hosts):

        def evaluate(*call: Any, number: int = number, host: Host = host) -> Any:
            seen.append((number, [(one.set, one.start) for one in call[2]]))
            return Host.evaluate(host, *call)

        worker: Any = host
        worker.evaluate = evaluate
    backend = InlineBackend(hosts, server)
    backend.nodes = ["b", "a", "b", "a"]
    list(Scheduler(job, backend).run())
    first = seen[:4]
    assert seen == first * 3
    assert [number for number, _ in first] == [1, 3, 0, 2]  # of node a, then of node b
    for name in ("validation", "test"):
        starts = [start for _, own in first for of, start in own if of == name]
        assert starts == sorted(set(starts))
        assert len(starts) > 4
