"""Central training against plain PyTorch, on any number of hosts, and as the counterpart of a federated scenario."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.functional import cross_entropy

import rayfl
from rayfl.config.phase import CentralPhase
from rayfl.config.scenario import Scenario
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ClientError, ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.runs.centralised import centralised
from rayfl.runs.preparation import prepare
from rayfl.streams import client_stream
from tests.algorithms.scene import CLASSES, TanhNet
from tests.engine.scenes import continued, run_on_hosts, snapshot_after

LOCAL: dict[str, Any] = {"batch_size": 16, "lr": 0.2, "momentum": 0.5, "weight_decay": 0.01}
CENTRAL: dict[str, Any] = {"name": "central", "schedule": "central", "rounds": 3, "local": LOCAL}
FEDERATED: dict[str, Any] = {"name": "federated", "rounds": 4, "cohort": 6, "local": {"epochs": 2, "batch_size": 4}}


def made(phases: list[dict[str, Any]], **changes: Any) -> tuple[RunPlan, FlatModel]:
    tables = {"name": "people", "seed": 5, "data": {"name": "tests.algorithms.scene:people"}, "phases": phases}
    model = "tests.algorithms.scene:TanhNet"
    return prepare(Scenario.from_tables(tables | {"model": model} | changes), Path("no-data-here"))


@pytest.mark.parametrize("keep", [False, True])
def test_three_passes_over_the_pool_are_those_of_plain_pytorch(keep: bool) -> None:
    job, model = made([CENTRAL | {"keep_momentum": keep}])
    network = TanhNet(CLASSES)
    network.load_state_dict(model.state_dict())
    network.double()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2, momentum=0.5, weight_decay=0.01)
    store = job.result.store
    x, y = torch.from_numpy(np.asarray(store.train.x)).double(), torch.from_numpy(store.train.y)
    for round in (1, 2, 3):
        if not keep:
            optimizer.state.clear()  # fresh in every round, as in every client update
        order = client_stream(5, "order", 0, round, store.num_clients, 0, 0).permutation(len(y))
        for start in range(0, len(y), 16):
            rows = order[start : start + 16]
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(network(x[rows]), y[rows]))
            optimizer.step()
    vector, events = run_on_hosts(job, 1)
    for name, tensor in model.state_dict(torch.from_numpy(vector)).items():
        np.testing.assert_allclose(tensor, network.state_dict()[name], atol=2e-6)
    done = [event for event in events if isinstance(event, RoundDone)]
    assert [event.steps for event in done] == [-(-len(y) // 16)] * 3
    assert done[-1].traffic.bytes == 0


def test_the_servers_own_samples_are_trained_on_alone() -> None:
    data = {"name": "tests.algorithms.scene:people", "server_share": 0.3}
    job, _ = made([CENTRAL | {"data": "server"}], data=data)
    server = job.result.store.server
    assert server is not None
    _, events = run_on_hosts(job, 2)
    steps = [event.steps for event in events if isinstance(event, RoundDone)]
    assert steps == [-(-len(server) // 16)] * 3


def test_options_of_local_training_apply_to_the_pool() -> None:
    local = LOCAL | {"epochs": 2, "steps": 9, "momentum": 0.0, "optimizer": "adamw", "unfreeze": {"share": 0.5}}
    job, _ = made([CENTRAL | {"local": local, "algorithm": "fedprox"}])
    _, events = run_on_hosts(job, 1)
    assert [event.steps for event in events if isinstance(event, RoundDone)] == [9] * 3


def test_the_counterpart_makes_as_many_passes_over_the_same_data() -> None:
    job, _ = made([FEDERATED])
    counterpart = centralised(job.scenario, job.result.population.sizes)
    (phase,) = counterpart.phases
    # half of the twelve clients, two epochs each, four rounds
    assert (phase.schedule, phase.rounds, phase.local.epochs) == ("central", 4, 1)
    assert phase.local.batch_size == 4
    capped, _ = made([FEDERATED | {"local": {"steps": 1, "batch_size": 1}, "rounds": 100, "cohort": 12}])
    sizes = capped.result.population.sizes
    assert centralised(capped.scenario, sizes).phases[0].rounds == round(100 * 12 / sizes.sum())


def test_samples_that_an_algorithm_keeps_for_queries_make_no_passes() -> None:
    coprefl = {"name": "coprefl", "query_share": 0.5}
    job, _ = made([FEDERATED | {"algorithm": coprefl, "rounds": 40}])
    sizes = job.result.population.sizes
    support = sum(int(size) - max(1, round(int(size) / 2)) for size in sizes)
    # half of the twelve clients, two epochs each
    expected = round(40 * 6 / 12 * 2 * support / int(sizes.sum()))
    assert centralised(job.scenario, sizes).phases[0].rounds == expected < 40


def test_a_counterpart_never_drops_the_privacy_of_clients() -> None:
    dp = {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01}
    job, _ = made([FEDERATED | {"algorithm": {"name": "fedavg", "weighting": "uniform"}, "dp": dp}])
    with pytest.raises(ScenarioError, match=r"^phases\.federated\.dp: central training has no clients"):
        centralised(job.scenario, job.result.population.sizes)


def test_a_scenario_runs_centralised_and_its_records_can_be_run_again(tmp_path: Path) -> None:
    job, _ = made([FEDERATED])
    quietly: dict[str, Any] = {"backend": "inline", "out": tmp_path, "console": Console(quiet=True)}
    result = rayfl.run(job.scenario, centralise=True, **quietly)
    assert result.directory.name.startswith("people_centralised-")
    again = rayfl.run(result.directory / "scenario.toml", **quietly)
    assert all(torch.equal(result.state_dict[name], again.state_dict[name]) for name in again.state_dict)


@pytest.mark.parametrize(
    ("phase", "complaint"),
    [
        ({"data": "server"}, "phases.central.data: the server has no samples; give it some with data.server_share"),
    ],
)
def test_wrong_central_phases_are_named(phase: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        made([CENTRAL | phase])


def test_divergence_is_told_of_the_pool_and_not_of_a_client() -> None:
    job, _ = made([CENTRAL | {"local": LOCAL | {"lr": 1e30}}])
    with pytest.raises(ClientError, match=r"^central training on worker 0, phase 'central', round 1: training div"):
        run_on_hosts(job, 1)


def test_the_counterpart_keeps_what_is_trained_and_how_far_the_rate_falls() -> None:
    federated = FEDERATED | {"algorithm": "fedbabu", "local": {"epochs": 1, "lr_decay": 0.5, "lr_drops": [2]}}
    changes = {"callbacks": [{"name": "early_stopping", "phase": "federated"}]}
    job, _ = made([federated], **changes)
    counterpart = centralised(job.scenario, job.result.population.sizes)
    (phase,) = counterpart.phases
    assert (phase.rounds, phase.train) == (2, "body")
    assert phase.local.lr_decay**phase.rounds == pytest.approx(0.5**4)
    assert phase.local.lr_drops == (1,)
    assert "phase" not in counterpart.callbacks[0].options


def test_passes_over_a_pool_and_answers_of_asynchronous_clients_are_counted_as_such() -> None:
    local = {"epochs": 2, "batch_size": 4}
    buffered = {"name": "b", "schedule": "buffered", "concurrency": 4, "buffer": 3, "rounds": 8, "local": local}
    phases = [CENTRAL | {"rounds": 5}, buffered]
    job, _ = made(phases, participation={"steps_per_s": 1}, resources={"client_state_gb": 1})
    (phase,) = centralised(job.scenario, job.result.population.sizes).phases
    # five passes over the pool; 24 updates of a twelfth of the samples, two epochs each
    assert phase.rounds == 5 + 24 * 2 // 12


def test_the_rate_of_the_counterpart_falls_over_all_passes_as_it_does_over_the_rounds_that_it_counts() -> None:
    def rates(phases: list[dict[str, Any]]) -> list[float]:
        job, _ = made(phases)
        replaced = centralised(job.scenario, job.result.population.sizes)
        counterpart = Scenario.from_tables(tomllib.loads(replaced.to_toml()))  # as when it is run again
        (phase,) = counterpart.phases
        return [RoundIndex(0, round, round).lr(counterpart) for round in range(1, phase.rounds + 1)]

    whole = FEDERATED | {"cohort": 12, "rounds": 10}
    local = {"epochs": 1, "batch_size": 4, "lr": 1.0}
    relay = whole | {"name": "relay", "schedule": "relay", "local": local}
    dropped = local | {"lr_drops": [5], "lr_drop": 0.5}
    assert rates([relay, whole | {"local": dropped | {"lr_decay_from": "phase"}}]) == [1.0] * 10 + [0.5] * 10
    assert rates([relay, whole | {"local": dropped | {"lr_drops": [15]}}]) == [1.0] * 15 + [0.5] * 5
    warmed = rates([whole | {"cohort": 6, "local": local | {"round_schedule": {"name": "linear", "warmup": 4}}}])
    # two of five passes warm up, as four of ten rounds did
    assert warmed == pytest.approx([1 / 3, 2 / 3, 1, 2 / 3, 1 / 3])


def test_the_counterpart_leaves_out_what_belongs_to_clients() -> None:
    numerics, resources = {"clients_at_once": 2}, {"client_state_gb": 2}
    stateful = FEDERATED | {"algorithm": "scaffold"}
    unused = FEDERATED | {"name": "unused", "rounds": 0}
    job, _ = made([stateful, unused], participation={"steps_per_s": 1}, numerics=numerics, resources=resources)
    prepare(centralised(job.scenario, job.result.population.sizes), Path("no-data-here"))


def test_kept_momentum_survives_a_snapshot_and_the_counterpart_may_keep_it_too() -> None:
    job, _ = made([CENTRAL | {"keep_momentum": True}])
    whole, _ = run_on_hosts(job, 1)
    model, _ = continued(job, *snapshot_after(job, 2, 2), hosts=1)
    assert np.array_equal(model, whole)
    federated, _ = made([FEDERATED | {"local": LOCAL}])
    (phase,) = centralised(federated.scenario, federated.phases[0].population.sizes, True).phases
    assert isinstance(phase, CentralPhase)
    assert phase.keep_momentum


def test_there_must_be_momentum_to_keep() -> None:
    with pytest.raises(ScenarioError, match=r"keep_momentum needs local\.optimizer = 'sgd'"):
        made([CENTRAL | {"keep_momentum": True, "local": {"lr": 0.1}}])
    federated, _ = made([FEDERATED])
    with pytest.raises(ScenarioError, match="--keep-momentum: phase 'federated' has no momentum; set its"):
        centralised(federated.scenario, federated.phases[0].population.sizes, True)
