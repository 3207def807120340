"""A task whose objective keeps tensors on clients: for how long, in every schedule, and beside what algorithms keep."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.job import Job
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.state_store import MemoryStore
from rayfl.errors import ScenarioError
from rayfl.local.state import Declaration
from rayfl.local.training_batch import TrainingBatch
from rayfl.planning.events import RoundDone
from rayfl.tasks.classification import Classification
from tests.engine.scenes import cast, prepared, run_on_hosts

SEEN: list[tuple[int, int, list[float]]] = []
"""(round, client, the queue that a batch found)."""


class Queued(Classification):
    """Labels of the three batches before, wherever the client trained on them, weigh in the loss of each."""

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        client = batch.client
        queue = client.state.get("queue", torch.zeros(3))
        SEEN.append((client.streams.round, client.id, queue.tolist()))
        client.state["queue"] = torch.cat([queue[1:], 1 + batch.y.float().mean().reshape(1)])
        return (1 + queue.sum()) * super().objective(batch)

    def client_state(self) -> Declaration:
        return {"queue": "phase"}


class AlsoPrevious(Classification):
    def client_state(self) -> Declaration:
        return {"previous": "phase"}


def job(task: str, schedule: str = "parallel", **changes: Any) -> Job:
    phase = {"name": "p", "schedule": schedule, "rounds": 3, "local": {"epochs": 2, "batch_size": 4, "lr": 0.1}}
    cohort = {} if schedule == "central" else {"cohort": {"explicit": [[0, 3]]}}
    return prepared(
        data={"name": "tests.algorithms.scene:people"},
        model={"name": "tests.algorithms.scene:TanhNet"},
        task=f"{__name__}:{task}",
        phases=[phase | cohort | changes],
        evaluation={"every": 100},
    )


@pytest.mark.parametrize("schedule", ["parallel", "relay", "central"])
def test_a_queue_is_found_again_in_the_next_round(schedule: str) -> None:
    SEEN.clear()
    run_on_hosts(job("Queued", schedule), 1)
    for client in {client for _, client, _ in SEEN}:
        found = [(round, queue) for round, of, queue in SEEN if of == client]
        assert found[0] == (1, [0, 0, 0])
        assert {round for round, _ in found} == {1, 2, 3}
        for (_, before), (_, after) in pairwise(found):
            assert after[:2] == before[1:]
            assert after[2] >= 1


@pytest.mark.parametrize("schedule", ["parallel", "relay", "central"])
def test_a_run_goes_on_in_the_middle_with_its_queues(schedule: str) -> None:
    whole, _ = run_on_hosts(job("Queued", schedule), 2)
    scheduler, _ = cast(job("Queued", schedule), 1)
    next(event for event in scheduler.run() if isinstance(event, RoundDone) and event.round == 2)
    store = MemoryStore()
    snapshot = RunSnapshot.from_json(scheduler.snapshot(store).to_json())
    for hosts in (1, 3):
        scheduler, server = cast(job("Queued", schedule), hosts)
        scheduler.restore(snapshot, store)
        list(scheduler.run())
        assert np.array_equal(server.committed()[1], whole)


def test_task_and_algorithm_may_not_keep_the_same_name() -> None:
    with pytest.raises(
        ScenarioError,
        match=r"phases.p: algorithm 'moon' and task '.*AlsoPrevious' both keep a state named 'previous'; combine",
    ):
        job("AlsoPrevious", algorithm="moon")
