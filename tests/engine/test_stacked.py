"""Stacked training against one client after the other: the same up to the order of sums, the same bits on any hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.config.local import Local
from rayfl.data.batches import BatchSource
from rayfl.engine.client_updates import ClientUpdates, UpdateErrors
from rayfl.engine.device import TorchGenerators
from rayfl.engine.events import RoundDone
from rayfl.engine.executors.executor import ClientSamples, Executor, Requested
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.engine.executors.stacked import Stacked
from rayfl.engine.initial_model import build_network
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.local.context import ClientContext, ClientFacts, ClientNetwork, ClientStreams, UpdatePlan
from rayfl.local.requests import Affine, ClientUpdate, LocalTraining, LossTerm
from rayfl.models.flat import FlatModel
from tests.engine.scenes import continued, prepared, run_on_hosts, snapshot_after
from tests.engine.unequal_images import COHORT
from tests.local.bench import Bench

CPU = torch.device("cpu")
MLP: Mapping[str, Any] = {"name": "mlp", "hidden": [20]}
LENET: Mapping[str, Any] = {"name": "lenet5"}
LOCAL = {"epochs": 2, "batch_size": 4, "lr": 0.1}
ALGORITHMS: list[dict[str, Any]] = [
    {"name": "fedavg"},
    {"name": "fedprox", "mu": 0.1},
    {"name": "scaffold"},
    {"name": "feddyn", "alpha": 0.1},
]
CASES = [*((algorithm, MLP) for algorithm in ALGORITHMS), (ALGORITHMS[2], LENET)]
"""Every algorithm on dense layers, and the one with most vectors on convolutions."""

EVERY_OPTION = LOCAL | {
    "momentum": 0.5,
    "weight_decay": 0.01,
    "clip_norm": 0.5,
    "clip_value": 0.1,
    "drop_last": True,
    "steps": {"uniform": [1, 4]},
    "lr_schedule": {"name": "cosine"},
}


def job(
    at_once: int, model: Mapping[str, Any], rounds: int = 1, local: Mapping[str, Any] = LOCAL, **phase: Any
) -> RunPlan:
    """Rounds of clients who have from 3 to 20 samples; several of them share a bucket."""
    cohort = {"explicit": [list(COHORT)]}
    return prepared(
        data={"name": "tests.engine.unequal_images:load"},
        model=model,
        phases=[{"name": "federated", "rounds": rounds, "cohort": cohort, "local": local} | phase],
        evaluation={"every": 100},
        numerics={"clients_at_once": at_once},
    )


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The clients of every stacked training, as they come."""
    groups, run = [], Stacked.run

    def noted(self: Stacked, requests: Sequence[Requested]) -> list[Any]:
        groups.append([requested.client.id for requested in requests])
        return run(self, requests)

    monkeypatch.setattr(Stacked, "run", noted)
    return groups


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max())


@pytest.mark.parametrize(("algorithm", "model"), CASES, ids=str)
def test_a_round_is_that_of_one_by_one_and_has_the_same_bits_on_any_number_of_hosts(
    stacked: list[list[int]], model: Mapping[str, Any], algorithm: dict[str, Any]
) -> None:
    expected, _ = run_on_hosts(job(1, model, algorithm=algorithm), 1)
    assert not stacked
    found, events = run_on_hosts(job(3, model, algorithm=algorithm), 1)
    assert sorted(map(len, stacked)) == ([2, 2, 3] if algorithm["name"] in ("scaffold", "feddyn") else [2, 3, 3])
    assert distance(found, expected) <= 1e-5
    again, seen = run_on_hosts(job(3, model, algorithm=algorithm), 3)
    assert np.array_equal(again, found)
    assert [event.train_loss for event in seen if isinstance(event, RoundDone)] == [
        event.train_loss for event in events if isinstance(event, RoundDone)
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS[2:], ids=str)
def test_a_round_from_states_that_others_left_is_that_of_one_by_one(
    stacked: list[list[int]], algorithm: dict[str, Any]
) -> None:
    one_by_one = job(1, MLP, rounds=3, algorithm=algorithm)
    kept = snapshot_after(one_by_one, 2, 2)
    results = []
    for made in (one_by_one, job(3, MLP, rounds=3, algorithm=algorithm)):
        model, later = continued(made, *kept, hosts=1)
        assert [event.round for event in later if isinstance(event, RoundDone)] == [3]
        results.append(model)
    assert len(stacked) == 3
    assert distance(*results) <= 1e-5


def test_every_option_of_plain_sgd_is_that_of_one_by_one(stacked: list[list[int]]) -> None:
    expected, _ = run_on_hosts(job(1, LENET, 2, EVERY_OPTION, algorithm=ALGORITHMS[1]), 1)
    found, _ = run_on_hosts(job(3, LENET, 2, EVERY_OPTION, algorithm=ALGORITHMS[1]), 1)
    assert len(stacked) == 6
    assert distance(found, expected) <= 1e-5


def test_terms_and_weight_decay_of_each_client_are_its_own() -> None:
    def update(client: ClientContext, initial: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        ones = torch.ones(client.num_params) * (initial[: client.num_params] != 0)
        linear, pull, both = Affine(ones), Affine(quadratic=0.5), Affine(0.1 * ones, 0.2, ones * client.id)
        terms = ((linear,), (), (pull, both))[client.id % 3]
        decay = 0.1 * (client.id % 2)
        trained: torch.Tensor = yield LocalTraining(initial, terms, after_step=terms[::-1], weight_decay=decay)
        return trained

    trained = []
    for executors in ((OneByOne,), (Stacked, OneByOne)):
        bench = Bench(*executors, model=MLP)
        group = [bench.client(number, LOCAL | {"momentum": 0.5}) for number in (3, 4, 5, 6, 8)]
        trained.append(bench.run_together(group, partial(update, initial=bench.initial)))
        assert all(client.losses for client in group)
    for one, other in zip(*trained, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


class SpareHead(torch.nn.Module):
    """A linear model with the head of another task between its layers, which no loss reaches."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.one = torch.nn.Linear(4, 4)
        self.spare = torch.nn.Linear(4, 2)
        self.last = torch.nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.one(x))
        return logits


def test_what_no_loss_reaches_is_left_alone_for_every_client_whose_algorithm_adds_nothing() -> None:
    def update(client: ClientContext, initial: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        terms = (Affine(quadratic=0.5),) if client.id % 2 else ()
        trained: torch.Tensor = yield LocalTraining(initial, terms)
        return trained

    trained = []
    for executors in ((OneByOne,), (Stacked, OneByOne)):
        bench = Bench(*executors, model=f"{__name__}:SpareHead")
        group = [bench.client(number, LOCAL | {"momentum": 0.5, "weight_decay": 0.1}) for number in (3, 4, 5, 6, 8)]
        trained.append(bench.run_together(group, partial(update, initial=bench.initial)))
    for client, one, other in zip(group, *trained, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
        (spare, _) = bench.model.slots_of(["spare.weight", "spare.bias"])
        assert torch.equal(spare.view(other), spare.view(bench.initial)) == (client.id % 2 == 0)
        (last,) = bench.model.slots_of(["last.weight"])
        assert not torch.equal(last.view(other), last.view(bench.initial))


def test_only_plain_sgd_on_the_whole_of_a_plain_network_is_stacked() -> None:
    bench = Bench(model=MLP)
    parts: Any = bench.model, None, bench.task, None
    plain, request = bench.client(3, LOCAL), LocalTraining(bench.initial)
    term: LossTerm = lambda batch: batch.outputs.square().mean()  # noqa: E731
    assert Stacked(*parts).accepts(plain, request)
    assert not Stacked(*parts).accepts(plain, replace(request, terms=(term,)))
    assert not Stacked(*parts).accepts(bench.client(3, LOCAL, train=("head",)), request)
    for option in ({"optimizer": "adam"}, {"precision": "bf16"}, {"accumulate": 2}, {"sample_weights": "balanced"}):
        assert not Stacked(*parts).accepts(bench.client(3, LOCAL | option), request)
    for network in ("batch_norm", "batch_statistics", "dropout", "recurrent"):
        other = Bench(model={"name": f"{__name__}:Other", "kind": network})
        parts = other.model, None, other.task, None
        assert not Stacked(*parts).accepts(other.client(3, LOCAL), LocalTraining(other.initial))


class Other(torch.nn.Module):
    """A network with one layer that does not stack."""

    def __init__(self, num_classes: int, kind: str) -> None:
        super().__init__()
        norm = torch.nn.Sequential(torch.nn.Unflatten(1, (2, 2)), torch.nn.BatchNorm1d(2), torch.nn.Flatten())
        of_batch = torch.nn.BatchNorm1d(4, track_running_stats=False)
        layers = {"batch_norm": norm, "dropout": torch.nn.Dropout(), "recurrent": torch.nn.GRU(4, 4)}
        layers["batch_statistics"] = of_batch
        self.one, self.last = layers[kind], torch.nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        entering = self.one(x)
        logits: torch.Tensor = self.last(entering[0] if isinstance(entering, tuple) else entering)
        return logits


class InDouble(BatchSource):
    """Batches in float64."""

    def training_views(self, *args: Any, **kwargs: Any) -> Iterator[tuple[list[Any], torch.Tensor]]:
        for views, y in super().training_views(*args, **kwargs):
            yield [x.double() for x in views if isinstance(x, torch.Tensor)], y


def rounds_in_double(
    made: RunPlan, kinds: Sequence[type[OneByOne] | type[Stacked]], prox: float, monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    """What three rounds of plain means leave, everything being float64."""
    workload = made.workloads[0]
    network = build_network(made.scenario, workload.network, workload.store, workload.num_outputs)
    with monkeypatch.context() as patch:
        patch.setattr("rayfl.models.layout._check_values", lambda *_: None)
        torch.set_default_dtype(torch.float64)
        try:
            model = FlatModel(network.double(), CPU)
        finally:
            torch.set_default_dtype(torch.float32)
    vector, source, generators = model.vector.clone(), InDouble(workload.store, CPU), TorchGenerators(CPU)
    samples = ClientSamples(source, CPU, workload.task)
    chain: list[Executor] = [kind(model, samples, workload.task, generators) for kind in kinds]
    network_of_all = ClientNetwork(model, model.buffers, lambda seed: vector)
    local = made.scenario.phases[0].local
    assert isinstance(local, Local)

    def update(client: ClientContext, start: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        trained: torch.Tensor = yield LocalTraining(start, gradient=(Affine(quadratic=prox, centre=start),))
        return trained

    for number in (1, 2, 3):
        group = [
            ClientContext(
                UpdatePlan(local, local.lr),
                ClientFacts(client, source.num_samples(client), 1.0, ClientStreams(7, 0, number, 0, client)),
                network_of_all,
            )
            for client in COHORT
        ]
        updates = ClientUpdates(chain, generators)
        vectors = updates.run(group, partial(update, start=vector), UpdateErrors(0, "double", number))
        vector = torch.stack(vectors).mean(dim=0)
    return vector


WILD = LOCAL | {"lr": 0.5, "epochs": 5}
"""Under which single roundings decide which units of LeNet-5 are active after three rounds."""


@pytest.mark.parametrize("local", [LOCAL, pytest.param(WILD, marks=pytest.mark.slow)], ids=["usual", "wild"])
def test_in_float64_three_rounds_of_lenet5_agree_to_a_billionth(
    local: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = job(1, LENET, local=local)
    one = rounds_in_double(made, (OneByOne,), 0.1, monkeypatch)
    other = rounds_in_double(made, (Stacked,), 0.1, monkeypatch)
    assert one.dtype == other.dtype == torch.float64
    assert distance(one.numpy(), other.numpy()) <= 1e-9
    assert distance(one.numpy(), made.workloads[0].initial.vector) > 0.01


@pytest.mark.slow
def test_in_float32_it_strays_no_further_than_one_by_one_does_from_a_start_beside_its_own() -> None:
    made = job(1, LENET, 3, WILD)
    one, _ = run_on_hosts(made, 1)
    strays = distance(run_on_hosts(job(3, LENET, 3, WILD), 1)[0], one)
    assert any(distance(run_on_hosts(perturbed(made, seed), 1)[0], one) > strays / 10 for seed in range(8))


def perturbed(made: RunPlan, seed: int) -> RunPlan:
    """The same job from initial weights that are 4e-8 away."""
    (workload,), rng = made.workloads, np.random.default_rng(seed)
    start = workload.initial.vector
    moved = start + 4e-8 * rng.standard_normal(len(start)).astype(np.float32) * (start != 0)
    return replace(made, workloads=[replace(workload, initial=replace(workload.initial, vector=moved))])
