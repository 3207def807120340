"""Phases that train different workloads: own data, own network, weights passed on by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.config.scenario import Scenario
from rayfl.engine.events import Evaluated
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.state.state_store import MemoryStore
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import split
from rayfl.runs.preparation import prepare
from tests.engine.scenes import FEDERATED, PRETRAIN, TINY, cast, prepared, snapshot_of, tables, with_workloads

OTHER = TINY["data"] | {"options": {"number": 5}}


class Reversed(torch.nn.Module):
    """As `torch.nn.Sequential` of the same names, but its parameters are declared from the last layer to the first."""

    def __init__(self, backwards: bool, num_classes: int) -> None:
        super().__init__()
        layers = {"first": torch.nn.Linear(4, 6), "last": torch.nn.Linear(6, num_classes)}
        for name in sorted(layers, reverse=backwards):
            self.add_module(name, layers[name])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.get_submodule("first")(x))
        logits: torch.Tensor = self.get_submodule("last")(hidden)
        return logits


def job_with(phases: list[Mapping[str, Any]], backwards: bool = False, **changes: Any) -> tuple[RunPlan, FlatModel]:
    model = {"name": f"{__name__}:Reversed", "backwards": backwards}
    return prepare(
        Scenario.from_tables(tables(**{"phases": phases, "data": TINY["data"], "model": model} | changes)),
        Path("no-data-here"),
    )


def two_workloads() -> RunPlan:
    """A relay over twelve clients, then FedAvg over five others with a model of another layout."""
    first, _ = job_with([PRETRAIN])
    second, _ = job_with([FEDERATED], backwards=True, data=OTHER)
    whole, _ = job_with([PRETRAIN, FEDERATED])
    return with_workloads(whole, first.result, second.result)


def test_each_phase_trains_and_evaluates_its_own_data_with_its_own_network() -> None:
    job = two_workloads()
    scheduler, server = cast(job, 2)
    events = list(scheduler.run())
    samples = [event.samples for event in events if isinstance(event, Evaluated)]
    sizes = [len(workload.store.test) for workload in job.workloads]
    assert sizes[0] != sizes[1]
    assert set(samples) == set(sizes)
    assert samples[0] == sizes[0]
    assert samples[-1] == sizes[1]
    assert len(split(server.committed()[1])[0]) == len(job.result.initial.vector)


def test_the_second_phase_starts_with_the_first_ones_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, though they lie elsewhere in the vector."""
    alone, model = job_with([PRETRAIN])
    scheduler, server = cast(alone, 1)
    list(scheduler.run())
    expected = model.state_dict(torch.from_numpy(split(server.committed()[1])[0]))

    job = two_workloads()
    scheduler, server = cast(job, 1)
    taken: list[np.ndarray] = []
    begin = server.begin

    def spied(*arguments: Any) -> Any:
        exchange = begin(*arguments)
        taken.append(np.array(exchange.send[0]))
        return exchange

    monkeypatch.setattr(server, "begin", spied)
    list(scheduler.run())
    _, other = job_with([FEDERATED], backwards=True, data=OTHER)
    assert [slot.name for slot in other.layout] != [slot.name for slot in model.layout]
    for name, value in other.state_dict(torch.from_numpy(taken[0])).items():
        assert torch.equal(value, expected[name]), name


def test_a_relay_too_takes_weights_over_by_name() -> None:
    """Trained for a single step, they stay close to where the phase before left them."""
    first, _ = job_with([FEDERATED])
    step = {**PRETRAIN, "rounds": 1, "cohort": 1, "local": {"steps": 1, "batch_size": 8, "lr": 1e-6}}
    second, other = job_with([step], backwards=True, data=OTHER)
    whole, model = job_with([FEDERATED, step])
    scheduler, server = cast(first, 1)
    list(scheduler.run())
    expected = model.state_dict(torch.from_numpy(split(server.committed()[1])[0]))
    scheduler, server = cast(with_workloads(whole, first.result, second.result), 1)
    list(scheduler.run())
    for name, value in other.state_dict(torch.from_numpy(split(server.committed()[1])[0])).items():
        assert torch.allclose(value, expected[name], rtol=0, atol=1e-4), name


@pytest.mark.parametrize("stop", [1, 3, 4, 5])
def test_it_goes_on_from_a_snapshot_on_other_hosts(stop: int) -> None:
    job = two_workloads()
    scheduler, server = cast(job, 2)
    list(scheduler.run())
    whole = split(server.committed()[1])[0]

    scheduler, _ = cast(job, 2)
    for event in scheduler.run():
        if getattr(event, "round_in_phase", None) and event.round == stop:
            store = MemoryStore()
            snapshot = snapshot_of(scheduler, store)
            break
    scheduler, server = cast(job, 3)
    scheduler.restore(snapshot, store)
    list(scheduler.run())
    assert np.array_equal(split(server.committed()[1])[0], whole)


def test_models_without_a_tensor_in_common_are_rejected_before_anything_starts() -> None:
    whole, _ = job_with([PRETRAIN, FEDERATED])
    other = prepared(phases=[FEDERATED]).result
    with pytest.raises(ScenarioError, match=r"phases.federated.model: takes over no weights from the previous phase:"):
        with_workloads(whole, whole.result, other)
