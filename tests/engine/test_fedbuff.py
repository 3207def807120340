"""Asynchrony needs no change of rayfl: FedBuff is a user's schedule (see `tests.engine.fedbuff`)."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.job import Job
from rayfl.engine.state_store import MemoryStore
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.planning.cohort import cohort_of
from rayfl.planning.events import RoundDone
from rayfl.planning.round_index import RoundIndex
from rayfl.streams import stream
from tests.algorithms.reference import PlainUpdate
from tests.algorithms.scene import PLAIN, SEED, SIZES, prepared
from tests.engine.scenes import cast, run_on_hosts, snapshot_of, without_clock

ROUNDS, CONCURRENCY, BUFFER = 7, 5, 2
PHASE: dict[str, Any] = {
    "schedule": "tests.engine.fedbuff:FedBuff",
    "rounds": ROUNDS,
    "cohort": len(SIZES),
    "concurrency": CONCURRENCY,
    "buffer": BUFFER,
}
UNIFORM = {"name": "fedavg", "weighting": "uniform"}


def made(algorithm: Any = UNIFORM, **phase: Any) -> tuple[Job, FlatModel]:
    return prepared(algorithm, PLAIN, PHASE | phase)


def flat(model: FlatModel, vector: np.ndarray) -> torch.Tensor:
    return torch.cat([part.flatten() for part in model.state_dict(torch.from_numpy(vector)).values()]).double()


def plain_fedbuff(job: Job) -> tuple[torch.Tensor, list[float]]:
    """Algorithm 1 with plain PyTorch, an event at a time; returns the model and the mean staleness of each step."""
    models = {1: PLAIN.initial()}
    phase, sizes = job.scenario.phases[0], np.array(SIZES)
    under_way: list[tuple[float, int, int]] = []
    clock, staleness = 0.0, []
    for step in range(1, ROUNDS + 1):
        order = cohort_of(phase, SEED, RoundIndex(0, step, step), sizes)
        free = [client for client in order if client not in {client for _, client, _ in under_way}]
        buffer = torch.zeros_like(models[1])
        ages: list[int] = []
        while len(ages) < BUFFER:
            for client in free[: CONCURRENCY - len(under_way)]:
                free.remove(client)
                seconds = float(stream(SEED, "duration", 0, step, client).lognormal(0.0, 1.0))
                heapq.heappush(under_way, (clock + seconds, client, step))
            clock, client, began = heapq.heappop(under_way)
            delta = PlainUpdate(PLAIN, client, began).sgd(models[began]) - models[began]
            buffer += delta / (1 + step - began) ** 0.5
            ages.append(step - began)
        models[step + 1] = models[step] + buffer / BUFFER
        staleness.append(sum(ages) / BUFFER)
    return models[ROUNDS + 1], staleness


def test_the_server_steps_by_the_discounted_mean_of_a_buffer() -> None:
    job, model = made()
    vector, events = run_on_hosts(job, 2)
    expected, staleness = plain_fedbuff(job)
    done = [event for event in events if isinstance(event, RoundDone)]
    assert [event.scalars["staleness"] for event in done] == staleness
    assert max(staleness) > 1
    assert [event.client_updates for event in done] == [BUFFER] * ROUNDS
    moved = (expected - PLAIN.initial()).norm()
    assert (flat(model, vector) - expected).norm() < 1e-5 * moved
    undiscounted, _ = run_on_hosts(made(staleness=0.0)[0], 2)
    assert (flat(model, undiscounted) - expected).norm() > 0.01 * moved


@pytest.mark.parametrize("algorithm", ["fedavg", "fedadam"])
def test_hosts_and_rounds_ahead_do_not_matter(algorithm: str) -> None:
    job, _ = made(algorithm)
    model, events = run_on_hosts(job, 1)
    for hosts in (2, 3):
        other, told = run_on_hosts(job, hosts)
        assert np.array_equal(other, model)
        assert repr(without_clock(told)) == repr(without_clock(events))
    scheduler, server = cast(job, 2)
    scheduler._backend.rounds_ahead = 2  # type: ignore[misc]
    list(scheduler.run())
    assert np.array_equal(server.committed()[1], model)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("round", [1, 3, ROUNDS])
def test_a_run_goes_on_with_updates_in_flight(round: int, ahead: int) -> None:
    job, _ = prepared("fedadam", PLAIN, {}, phases=[
        {"name": "buffered", "algorithm": "fedadam", "local": dict(PLAIN.local)} | PHASE,
        {"name": "after", "rounds": 2, "cohort": 3, "local": dict(PLAIN.local)},
    ])  # fmt: skip
    whole, events = run_on_hosts(job, 1)
    store = MemoryStore()
    scheduler, _ = cast(job, 3)
    scheduler._backend.rounds_ahead = ahead  # type: ignore[misc]
    next(event for event in scheduler.run() if isinstance(event, RoundDone) and event.round == round)
    snapshot = snapshot_of(scheduler, store)
    began = {update[2] for update in snapshot.in_flight["updates"]}
    assert len(snapshot.in_flight["updates"]) == CONCURRENCY - 1
    assert snapshot.server.open.keys() == (began if round < ROUNDS else set())
    scheduler, server = cast(job, 2)
    scheduler.restore(snapshot, store)
    later = list(scheduler.run())
    assert np.array_equal(server.committed()[1], whole)
    done = [event for event in without_clock(events) if "train_loss" in event and event["round"] > round]
    assert repr([event for event in without_clock(later) if "train_loss" in event]) == repr(done)


def test_the_server_keeps_nothing_of_rounds_that_nobody_answers_any_more() -> None:
    scheduler, server = cast(made()[0], 1)
    for event in scheduler.run():
        if isinstance(event, RoundDone):
            assert len(server._began_from) <= CONCURRENCY
            assert len(server._rounds) == 0
    assert not server._began_from


@pytest.mark.parametrize(
    ("algorithm", "phase", "complaint"),
    [
        ("qfedavg", {}, r"phases.federated.algorithm: 'qfedavg' has 2 exchanges a round, and a buffer takes one"),
        ("scaffold", {}, r"phases.federated.algorithm: clients of 'scaffold' keep a state \(control\), and rounds"),
        ("fedavg", {"cohort": 6}, r"phases.federated.cohort: 5 clients at a time and a buffer of 2 need as many"),
        ("fedavg", {"transforms": ["top_k"]}, r"phases.0.transforms: has no effect with this schedule; leave it out"),
        ("fedavg", {"bufer": 3}, r"phases.0.bufer: unknown key; did you mean 'buffer'\?"),
        ("fedavg", {"buffer": 0}, r"phases.0.buffer: must be greater than 0 \(got 0\)"),
    ],
)
def test_what_a_buffer_cannot_have_is_refused_by_name(algorithm: str, phase: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        made(algorithm, **phase)
