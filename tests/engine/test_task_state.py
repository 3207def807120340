"""A task that keeps tensors on clients, in every schedule and beside what algorithms keep, and one with a target."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rayfl.engine.initial_model import flat_model
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ScenarioError
from rayfl.local.batches import TrainingBatch
from rayfl.local.context import ClientContext
from rayfl.local.state import Declaration
from rayfl.models.flat import FlatModel
from rayfl.tasks.supervised import Classification
from tests.algorithms.scene import TanhNet
from tests.engine.scenes import continued, prepared, run_on_hosts, snapshot_after

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


class Followed(TanhNet):
    """Its first layer has a target."""

    copies = {"target": "first"}  # noqa: RUF012

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.target = copy.deepcopy(self.first).requires_grad_(False)


def distance(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    first, target = module.get_submodule("first"), module.get_submodule("target")
    squared: torch.Tensor = (first(x) - target(x)).pow(2).mean()
    return squared


def follow(module: nn.Module) -> None:
    first, target = module.get_submodule("first"), module.get_submodule("target")
    for slow, fast in zip(target.parameters(), first.parameters(), strict=True):
        slow.lerp_(fast, 0.5)


class Following(Classification):
    """The target moves half of the way to the layer after every step, which is held back by it."""

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return super().objective(batch) + distance(batch.module, batch.x)

    def after_step(self, module: nn.Module, client: ClientContext) -> None:
        follow(module)


class AlsoPrevious(Classification):
    def client_state(self) -> Declaration:
        return {"previous": "phase"}


LOCAL = {"epochs": 2, "batch_size": 4, "lr": 0.1}


def job(
    task: str, schedule: str = "parallel", model: str = "tests.algorithms.scene:TanhNet", **changes: Any
) -> RunPlan:
    phase = {"name": "p", "schedule": schedule, "rounds": 3, "local": LOCAL}
    cohort = {} if schedule == "central" else {"cohort": {"explicit": [[0, 3]]}}
    return prepared(
        data={"name": "tests.algorithms.scene:people"},
        model={"name": model},
        task=f"{__name__}:{task}",
        phases=[phase | cohort | changes],
        evaluation={"every": 100},
    )


@pytest.mark.parametrize("schedule", ["parallel", "relay", "central"])
def test_a_queue_is_found_again_in_the_next_round(schedule: str) -> None:
    made = job("Queued", schedule)
    SEEN.clear()  # the objective is also tried before a run
    run_on_hosts(made, 1)
    for client in {client for _, client, _ in SEEN}:
        found = [(round, queue) for round, of, queue in SEEN if of == client]
        assert found[0] == (1, [0.0, 0.0, 0.0])
        assert {round for round, _ in found} == {1, 2, 3}
        for (_, before), (_, after) in pairwise(found):
            assert after[:2] == before[1:]
            assert after[2] >= 1


@pytest.mark.parametrize("schedule", ["parallel", "relay", "central"])
def test_a_run_goes_on_in_the_middle_with_its_queues(schedule: str) -> None:
    whole, _ = run_on_hosts(job("Queued", schedule), 2)
    kept = snapshot_after(job("Queued", schedule), 2, 1)
    for hosts in (1, 3):
        model, _ = continued(job("Queued", schedule), *kept, hosts=hosts)
        assert np.array_equal(model, whole)


@pytest.mark.parametrize("where", ["phases.p.server_training", "evaluation.personalize"])
def test_training_beside_the_clients_updates_has_no_queue(where: str) -> None:
    data = {"name": "tests.algorithms.scene:people", "server_share": 0.2, "test_share": 0.2}
    phase, evaluation = ({"server_training": LOCAL}, {}) if "phases" in where else ({}, {"personalize": LOCAL})
    phases = [{"name": "p", "rounds": 1, "cohort": 2, "local": LOCAL} | phase]
    model, task = {"name": "tests.algorithms.scene:TanhNet"}, f"{__name__}:Queued"
    with pytest.raises(ScenarioError, match=rf"^{where}: task '.*Queued' keeps queue in a client's state, which this"):
        prepared(data=data, model=model, task=task, phases=phases, evaluation={"every": 100} | evaluation)


def test_task_and_algorithm_may_not_keep_the_same_name() -> None:
    with pytest.raises(
        ScenarioError,
        match=r"phases.p: algorithm 'moon' and task '.*AlsoPrevious' both keep a state named 'previous'; leave",
    ):
        job("AlsoPrevious", algorithm="moon")


def test_a_target_follows_after_every_step() -> None:
    local = {"epochs": 5, "batch_size": "full", "lr": 0.1}
    made = job("Following", model=f"{__name__}:Followed", rounds=1, cohort={"explicit": [[3]]}, local=local)
    workload = made.workloads[0]
    module: Any = flat_model(made.scenario, workload).module
    store = workload.store
    rows = store.train_shards[3]
    x, y = torch.from_numpy(store.train.x[rows]), torch.from_numpy(store.train.y[rows])
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(module(x), y) + distance(module, x))
        optimizer.step()
        with torch.no_grad():
            follow(module)
    expected = FlatModel(module, torch.device("cpu")).vector
    assert not torch.equal(module.get_submodule("target").weight, module.get_submodule("first").weight)
    assert np.allclose(run_on_hosts(made, 1)[0], expected.detach().numpy(), atol=1e-6)
