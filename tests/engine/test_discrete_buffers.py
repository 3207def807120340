"""Flags and counters of a layer that initialises itself from its first batch, against plain PyTorch loops."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

import rayfl
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.engine.events import Evaluated, Event, RoundDone
from rayfl.engine.plan.cohort import cohort_of
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.workload import InitialModel
from rayfl.engine.reduction import LeftBuffers, Reduction, of_largest
from rayfl.errors import ClientError, ScenarioError
from rayfl.local.client_state import as_arrays
from rayfl.local.requests import LocalTraining
from rayfl.models.flat import FlatModel
from rayfl.models.network import Network
from rayfl.models.tensors import SentModel, WholeModel, split
from rayfl.streams import torch_seed
from tests.algorithms.reference import PlainUpdate
from tests.algorithms.scene import CLASSES, INPUTS, SEED, SIZES, Setting, people, prepared
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, snapshot_after, snapshot_of, without_clock


class FromFirstBatch(nn.Module):
    """Shifts and scales to mean 0 and deviation 1 on its first batch, in any mode; counts what it trains on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.ones(width))
        self.register_buffer("initialised", torch.tensor(False))
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))
        self.initialised: torch.Tensor
        self.seen: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.initialised:
            with torch.no_grad():
                self.shift.copy_(-x.mean(dim=0))
                self.scale.copy_(1 / (x.std(dim=0) + 0.1))
                self.initialised.fill_(True)
        if self.training:
            self.seen += torch.tensor([1, len(x)])
        return (x + self.shift) * self.scale


class StartsItself(Network):
    """A dense layer, the layer above, and a classifier."""

    ordered_modules = ("first", "norm", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(INPUTS, 6), FromFirstBatch(6)
        self.read_out = nn.Linear(6, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(torch.tanh(self.norm(self.first(x))))
        return logits


MODEL = f"{__name__}:StartsItself"
LOCAL = {"epochs": 2, "batch_size": 4, "lr": 0.3}
COHORTS = ((0, 3, 8), (4, 9, 2), (3, 8, 6))
SETTING = Setting(COHORTS, 3, LOCAL)
NAMES = ("norm.initialised", "norm.seen")


def initial() -> StartsItself:
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(SEED, "initial"))
        return StartsItself(CLASSES)


def train(net: StartsItself, client: int, round: int, request: int = 0, pull: torch.Tensor | None = None) -> None:
    """A client's update in PyTorch; pull: the parameters that a proximal term of weight 0.1 pulls towards."""
    update = PlainUpdate(SETTING, client, round, request=request)
    optimizer = torch.optim.SGD(net.parameters(), lr=update.lr)
    net.train()
    for rows in update.batches:
        optimizer.zero_grad()
        F.cross_entropy(net(update.x[rows].float()), update.y[rows]).backward()  # type: ignore[no-untyped-call]
        if pull is not None:
            start = 0
            for p in net.parameters():
                assert p.grad is not None
                p.grad += 0.1 * (p.detach() - pull[start : start + p.numel()].reshape(p.shape))
                start += p.numel()
        optimizer.step()


def averaged(nets: Sequence[StartsItself], cohort: Sequence[int]) -> StartsItself:
    """FedAvg: the mean of the parameters, and the buffers of the client with most samples."""
    net = copy.deepcopy(max(zip(nets, cohort, strict=True), key=lambda pair: (SIZES[pair[1]], -pair[1]))[0])
    total = sum(SIZES[client] for client in cohort)
    with torch.no_grad():
        for same in zip(net.parameters(), *(other.parameters() for other in nets), strict=True):
            mean = sum(SIZES[client] / total * p.double() for p, client in zip(same[1:], cohort, strict=True))
            assert isinstance(mean, torch.Tensor)
            same[0].copy_(mean)
    return net


def plain_rounds(rounds: int = 3) -> StartsItself:
    net = initial()
    for round in range(1, rounds + 1):
        cohort, nets = COHORTS[round - 1], []
        for client in cohort:
            nets.append(copy.deepcopy(net))
            train(nets[-1], client, round)
        net = averaged(nets, cohort)
    return net


def job_of(algorithm: Any = "fedavg", phase: Any = None, **changes: Any) -> tuple[Any, FlatModel]:
    return prepared(algorithm, SETTING, phase or {}, model=MODEL, **changes)


def state_of(model: FlatModel, sent: SentModel) -> dict[str, torch.Tensor]:
    vector, discrete = split(sent)
    return model.state_dict(
        torch.from_numpy(np.array(vector)), {name: torch.from_numpy(np.array(v)) for name, v in discrete.items()}
    )


def run_on_hosts(job: RunPlan, hosts: int) -> tuple[SentModel, list[Event]]:
    """The final model, with what is beside its vector, and the events."""
    scheduler, server = cast(job, hosts)
    events = list(scheduler.run())
    return server.committed()[1], events


def check_same(ours: dict[str, torch.Tensor], net: nn.Module) -> None:
    expected = net.state_dict()
    for name in NAMES:
        assert torch.equal(ours[name], expected[name]), (name, ours[name], expected[name])
    torch.testing.assert_close(ours, dict(expected), rtol=0, atol=3e-6)


def same_bits(one: SentModel, other: SentModel) -> bool:
    (vector, discrete), (vector_too, discrete_too) = split(one), split(other)
    return np.array_equal(vector, vector_too) and all(np.array_equal(discrete[n], discrete_too[n]) for n in NAMES)


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_parallel_round_takes_the_buffers_of_the_participant_with_most_samples(hosts: int) -> None:
    job, model = job_of()
    sent, _ = run_on_hosts(job, hosts)
    check_same(state_of(model, sent), plain_rounds())


def test_a_host_keeps_equal_buffers_of_answers_in_order_only_once() -> None:
    reduction, left = Reduction(32, ordered=True), list[LeftBuffers]()
    for client in range(4):
        left.append(LeftBuffers(client, 1, 9, {"mask": np.ones(1000, np.int64), "seen": np.array(client // 2)}))
        reduction.leave(left[-1])
    found = reduction.result().left
    assert [(one.client, int(one.values["seen"]), int(one.values["mask"].sum())) for one in found] == [
        (client, client // 2, 1000) for client in range(4)
    ]
    assert len(pickle.dumps(found)) < 1.5 * 8 * 1000


def test_of_equally_large_participants_the_lowest_number_counts() -> None:
    left = [LeftBuffers(client, 1, 9, {}) for client in (7, 5, 8)]
    assert of_largest(left).client == 5


@pytest.mark.parametrize(("relay", "hosts"), [("packed", 3), ("spread", 1), ("spread", 3)])
def test_a_relay_passes_buffers_on_from_hop_to_hop(hosts: int, relay: str) -> None:
    job, model = job_of(phase={"schedule": "relay"}, resources={"relay": relay})
    sent, _ = run_on_hosts(job, hosts)
    net = initial()
    for round, cohort in enumerate(COHORTS, start=1):
        for client in cohort:
            train(net, client, round)
    check_same(state_of(model, sent), net)


SPEEDS: dict[str, Any] = {"participation": {"steps_per_s": 2.0}}
STEPPED: dict[str, Any] = {"cohort": 1.0, "concurrency": 5, "rounds": 5, "staleness": "constant"}
UNIFORM = {"name": "fedavg", "weighting": "uniform"}


def plain_steps(phase: Any, buffer: int, mixing: float | None) -> nn.Module:
    """Asynchronous training, one moment of virtual time after the other, in which all clients are equally fast."""
    net: nn.Module = initial()
    now, done, training, pending, begun = 0.0, 0, dict[int, Any](), list[Any](), set[Any]()
    while True:
        for client in sorted(client for client, (ends, _, _) in training.items() if ends == now):
            _, began, base = training.pop(client)
            trained = copy.deepcopy(base)
            train(trained, client, began + 1)
            pending.append((base, trained))
            if len(pending) < buffer:
                continue
            stepped = copy.deepcopy(pending[-1][1])  # whose buffers these are
            for own, old, *of_answers in zip(
                stepped.parameters(), net.parameters(), *(m.parameters() for pair in pending for m in pair), strict=True
            ):
                starts, ends = of_answers[::2], of_answers[1::2]
                moved = sum((end - start).detach() for start, end in zip(starts, ends, strict=True))
                assert isinstance(moved, torch.Tensor)
                own.data = old + moved / buffer if mixing is None else (1 - mixing) * old + mixing * ends[0]
            net, pending, done = stepped, [], done + 1
            if done == 5:
                return net
        for client in cohort_of(phase, SEED, RoundIndex(0, done + 1, done + 1), np.array(SIZES)):
            if len(training) < 5 and client not in training and (client, done) not in begun:
                training[client] = now + 2 * ceil(SIZES[client] / 4) / 2.0, done, net
                begun.add((client, done))
        now = min(ends for ends, _, _ in training.values())


@pytest.mark.parametrize(
    ("phase", "buffer", "mixing"),
    [({"schedule": "buffered", "buffer": 3}, 3, None), ({"schedule": "asynchronous", "mixing": 0.6}, 1, 0.6)],
)
def test_an_asynchronous_step_takes_the_buffers_of_the_answer_applied_last(
    phase: dict[str, Any], buffer: int, mixing: float | None
) -> None:
    job, model = job_of(UNIFORM, STEPPED | phase, **SPEEDS)
    expected, _ = run_on_hosts(job, 1)
    check_same(state_of(model, expected), plain_steps(job.scenario.phases[0], buffer, mixing))
    assert same_bits(run_on_hosts(job, 3)[0], expected)


class Twice(LocalTrainingAlgorithm):
    """Trains, and trains on from a copy; knows nothing about buffers."""

    def round(self, server: Any, context: Any) -> Any:
        answers = yield Exchange(self.client_update, server.model)
        server.model += answers.mean("delta")

    def client_update(self, client: Any, model: torch.Tensor) -> Any:
        trained = yield LocalTraining(model)
        trained = yield LocalTraining(trained.clone())
        return Answer(client.num_samples, delta=trained - model)


def test_the_requests_of_an_update_continue_from_its_own_buffers() -> None:
    job, model = job_of(f"{__name__}:Twice")
    sent, _ = run_on_hosts(job, 2)
    net = initial()
    for round, cohort in enumerate(COHORTS, start=1):
        nets = []
        for client in cohort:
            nets.append(copy.deepcopy(net))
            train(nets[-1], client, round)
            train(nets[-1], client, round, request=1)
        net = averaged(nets, cohort)
    check_same(state_of(model, sent), net)


def personal_scores(event: Evaluated) -> dict[int, float | None]:
    return {score.client: score.scores["loss"] for score in event.clients}


def loss_on_own_samples(net: StartsItself, client: int) -> float:
    data = people().test
    rows = slice(2 * client, 2 * client + 2)
    with torch.no_grad():
        logits = copy.deepcopy(net).eval()(torch.from_numpy(np.asarray(data.x))[rows])
        return float(F.cross_entropy(logits, torch.from_numpy(data.y)[rows]))


def flat(net: StartsItself) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def plain_ditto() -> tuple[StartsItself, dict[int, StartsItself]]:
    net, own = initial(), dict[int, StartsItself]()
    for round, cohort in enumerate(COHORTS, start=1):
        nets = []
        for client in cohort:
            nets.append(copy.deepcopy(net))
            train(nets[-1], client, round)
            own[client] = own.get(client, copy.deepcopy(net))
            train(own[client], client, round, request=1, pull=flat(net))
        net = averaged(nets, cohort)
    return net, own


def plain_alone() -> tuple[StartsItself, dict[int, StartsItself]]:
    own = dict[int, StartsItself]()
    for round, cohort in enumerate(COHORTS, start=1):
        for client in cohort:
            own[client] = own.get(client, initial())
            train(own[client], client, round)
    return initial(), own


def plain_parts(kept: Sequence[str]) -> tuple[StartsItself, dict[int, StartsItself]]:
    """Clients keep the tensors whose names begin like this, and take everything else from the server."""
    net, own = initial(), dict[int, StartsItself]()
    for round, cohort in enumerate(COHORTS, start=1):
        nets = []
        for client in cohort:
            nets.append(with_part(net, own.get(client, net), kept))
            train(nets[-1], client, round)
            own[client] = nets[-1]
        shared = averaged(nets, cohort)
        net = with_part(shared, net, kept)
    return net, {client: with_part(net, mine, kept) for client, mine in own.items()}


def with_part(net: StartsItself, own: StartsItself, kept: Sequence[str]) -> StartsItself:
    result, mine = copy.deepcopy(net), own.state_dict()
    result.load_state_dict(
        {name: mine[name] if name.startswith(tuple(kept)) else value for name, value in net.state_dict().items()}
    )
    return result


def plain_kept() -> tuple[StartsItself, dict[int, StartsItself]]:
    """`buffers = "keep"`: parameters are averaged, the client continues from its own buffers."""
    net, own = initial(), dict[int, StartsItself]()
    for round, cohort in enumerate(COHORTS, start=1):
        nets = []
        for client in cohort:
            nets.append(with_part(net, own.get(client, net), NAMES))
            train(nets[-1], client, round)
            own[client] = nets[-1]
        net = averaged(nets, cohort)
    return net, {client: with_part(net, mine, NAMES) for client, mine in own.items()}


PERSONAL: dict[str, Any] = {"evaluation": {"every": 1, "client_model": "personal", "batch_size": 3}}
PERSONAL_CASES: dict[str, tuple[Any, Any, Any]] = {
    "ditto": ("ditto", {}, plain_ditto),
    "local": ("fedavg", {"schedule": "local"}, plain_alone),
    "fedper": ({"name": "fedper", "keeps": ["norm", "read_out"]}, {}, lambda: plain_parts(("norm.", "read_out."))),
    "fedper of another part": ({"name": "fedper", "keeps": "head"}, {}, lambda: plain_parts(("read_out.",))),
    "keep": ({"name": "fedavg", "buffers": "keep"}, {}, plain_kept),
}


@pytest.mark.parametrize("name", PERSONAL_CASES)
def test_personal_models_and_kept_buffers_have_buffers_of_their_own(name: str) -> None:
    algorithm, phase, plain = PERSONAL_CASES[name]
    job, model = job_of(algorithm, phase, **PERSONAL)
    sent, events = run_on_hosts(job, 2)
    net, own = plain()
    check_same(state_of(model, sent), net)
    *_, last = [event for event in events if isinstance(event, Evaluated)]
    found = personal_scores(last)
    assert own, name
    for client, mine in own.items():
        assert found[client] == pytest.approx(loss_on_own_samples(mine, client), abs=1e-5), client
    whole, _ = run_on_hosts(job, 1)
    assert same_bits(whole, sent)


@pytest.mark.parametrize("name", ["ditto", "keep", "local"])
def test_clients_keep_buffers_beside_their_state_in_their_own_type(name: str) -> None:
    algorithm, phase, plain = PERSONAL_CASES[name]
    job, _ = job_of(algorithm, phase, **PERSONAL)
    scheduler, _ = cast(job, 2)
    list(scheduler.run())
    store = MemoryStore()
    kept = kept_by_clients(snapshot_of(scheduler, store), store)
    state = {"ditto": "personal", "keep": "buffers", "local": "own model"}[name]
    for client, mine in plain()[1].items():
        for buffer in NAMES:
            ours, expected = kept[client][f"phase/{state}@{buffer}"], mine.state_dict()[buffer].numpy()
            assert (ours.dtype, ours.tolist()) == (expected.dtype, expected.tolist())


TABLES: dict[str, Any] = {
    "seed": SEED,
    "data": {"name": "tests.algorithms.scene:people", "options": {"number": len(SIZES)}},
    "model": MODEL,
    "phases": [{"name": "federated", "rounds": 3, "cohort": {"explicit": [list(c) for c in COHORTS]}, "local": LOCAL}],
    "evaluation": {"every": 1},
}


RESUMED: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "buffered": (UNIFORM, STEPPED | {"schedule": "buffered", "buffer": 3}, SPEEDS),
    "ema": ("fedavg", {"eval_model": "ema"}, {}),
    "several exchanges": ({"name": "coprefl", "query_share": 0.5}, {}, {}),
    "trained on by the server": (
        "fedavg",
        {"server_training": {"epochs": 1, "batch_size": 4, "lr": 0.1}},
        {"data": {**TABLES["data"], "server_share": 0.1}},
    ),
    **{name: (*PERSONAL_CASES[name][:2], PERSONAL) for name in ("ditto", "keep")},
}
"""Each keeps buffers in its own place: in flight, beside a mean, between exchanges, on the server, with clients."""


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_ends_with_the_same_bits(name: str) -> None:
    algorithm, phase, changes = RESUMED[name]
    job, _ = job_of(algorithm, phase, **changes)
    whole, events = run_on_hosts(job, 1)
    assert isinstance(whole, WholeModel)
    second, server = cast(job, 2)
    second.restore(*snapshot_after(job, 2, 3))
    later = list(second.run())
    assert same_bits(server.committed()[1], whole)
    *_, ours = [event for event in without_clock(later) if "scores" in event]
    *_, expected = [event for event in without_clock(events) if "scores" in event]
    assert repr(ours) == repr(expected)


def test_relays_side_by_side_leave_the_buffers_of_the_heaviest() -> None:
    job, _ = job_of()
    _, server = cast(job, 1)
    vector, index = np.array(job.result.initial.vector), RoundIndex(0, 1, 1)
    ends = [WholeModel(vector, {"seen": np.array(number)}) for number in (4, 7, 9)]
    server.adopt(index, [2.0, 5.0, 5.0], *ends)
    assert split(server.model_after(index))[1]["seen"] == 7


def test_clients_that_may_train_at_once_train_one_by_one() -> None:
    job, model = job_of(numerics={"clients_at_once": 3})
    sent, _ = run_on_hosts(job, 2)
    check_same(state_of(model, sent), plain_rounds())


def test_buffers_that_start_anew_do_so_with_their_initial_values() -> None:
    job, model = job_of({"name": "fedavg", "buffers": "reset"})
    sent, _ = run_on_hosts(job, 2)
    net = initial()
    for round, cohort in enumerate(COHORTS, start=1):
        nets = []
        for client in cohort:
            nets.append(with_part(net, initial(), NAMES))
            train(nets[-1], client, round)
        net = averaged(nets, cohort)
    check_same(state_of(model, sent), net)


@pytest.mark.parametrize(
    ("algorithm", "phase", "beside"),
    [
        ("fedavg", {}, 1 + 2 * 8),
        ({"name": "fedavg", "buffers": "keep"}, {}, 0),
        ("fedavg", {"train": ["read_out"]}, 0),
        ({"name": "fedper", "keeps": ["norm"]}, {}, 0),
    ],
)
def test_the_bytes_of_every_type_are_counted(algorithm: Any, phase: dict[str, Any], beside: int) -> None:
    """One flag and two 64-bit integers with every model, in both directions, unless clients keep or never change it."""
    job, _ = job_of(algorithm, phase)
    _, events = run_on_hosts(job, 2)
    first = next(event for event in events if isinstance(event, RoundDone))
    floats = {"read_out": 6 * CLASSES + CLASSES, "norm": 12, "first": 6 * INPUTS + 6}
    sent = (
        ["read_out"]
        if phase
        else [name for name in floats if algorithm == "fedavg" or name != "norm" or "keeps" not in algorithm]
    )
    size = 4 * sum(floats[name] for name in sent) + beside
    assert (first.traffic.down_bytes, first.traffic.up_bytes) == (3 * size, 3 * size)
    values = sum(floats[name] for name in sent) + (3 if beside else 0)
    assert (first.traffic.down_values, first.traffic.up_values) == (3 * values, 3 * values)


class Writes(StartsItself):
    """Adds to its outputs what evaluation wrote into buffers before."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("last", torch.zeros(1))
        self.register_buffer("batches", torch.tensor(0))
        self.register_buffer("hidden", torch.tensor(0, dtype=torch.int32), persistent=False)
        self.last: torch.Tensor
        self.batches: torch.Tensor
        self.hidden: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = super().forward(x) * (1 + self.last + self.batches + self.hidden)
        if not self.training:
            self.last += x.mean().detach()
            self.batches += 1
            self.hidden += 1
        return logits


def test_a_batch_of_an_evaluation_changes_no_buffer_for_the_next() -> None:
    evaluation = {"every": 1, "batch_size": 3}
    job, model = prepared("fedavg", Setting(COHORTS, 1, LOCAL), model=f"{__name__}:Writes", evaluation=evaluation)
    sent, events = run_on_hosts(job, 1)
    net = Writes(CLASSES)
    net.load_state_dict(state_of(model, sent))
    assert not net.last
    assert not net.batches
    data, correct = people().test, 0
    (evaluated,) = [event for event in events if isinstance(event, Evaluated)]
    losses = []
    for start in range(0, len(data), 3):
        x, y = torch.from_numpy(np.asarray(data.x))[start : start + 3], torch.from_numpy(data.y)[start : start + 3]
        with torch.no_grad():
            logits = copy.deepcopy(net).eval()(x)
        losses.append(float(F.cross_entropy(logits, y, reduction="sum")))
        correct += int((logits.argmax(1) == y).sum())
    assert evaluated.scores["test_loss"] == pytest.approx(sum(losses) / len(data), rel=1e-6)
    assert evaluated.scores["test_accuracy"] == correct / len(data)


def test_a_model_is_personalised_from_the_servers_buffers() -> None:
    local = {"epochs": 1, "batch_size": "full", "lr": 0.1}
    evaluation = {"every": 1, "per_client": True, "personalize": local}
    job, _ = job_of(evaluation=evaluation)
    _, events = run_on_hosts(job, 2)
    *_, last = [event for event in events if isinstance(event, Evaluated)]
    data, test = people().train, people().test
    assert len(last.clients) == len(SIZES)
    own = [np.flatnonzero(np.repeat(np.arange(len(SIZES)), SIZES) == client) for client in range(len(SIZES))]
    for score in last.clients[::4]:
        net, rows = plain_rounds(), own[score.client]
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = torch.from_numpy(np.asarray(data.x)[rows]), torch.from_numpy(data.y[rows])
        F.cross_entropy(net.train()(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        mine = slice(2 * score.client, 2 * score.client + 2)
        guessed = net.eval()(torch.from_numpy(np.asarray(test.x)[mine])).argmax(1).numpy()
        assert score.scores["personalized_accuracy"] == (guessed == test.y[mine]).mean()


def test_trials_before_the_run_do_not_initialise_the_network() -> None:
    job, model = job_of()
    check_same(model.state_dict(), initial())
    assert not job.result.initial.discrete["norm.initialised"]


def run(folder: Path, **changes: Any) -> rayfl.Result:
    return rayfl.run(TABLES | changes, backend="inline", out=folder, console=Console(quiet=True))


@pytest.mark.parametrize("relay", [False, True])
def test_an_exported_model_gives_the_recorded_accuracy_and_changes_nothing_when_used(
    relay: bool, tmp_path: Path
) -> None:
    phase = TABLES["phases"][0] | ({"schedule": "relay"} if relay else {})
    result = run(tmp_path, phases=[phase], callbacks=[{"name": "best_model"}])
    exported = safetensors.torch.load_file(result.directory / "model.safetensors")
    net, data = StartsItself(CLASSES).eval(), people().test
    net.load_state_dict(exported)
    assert exported["norm.initialised"].dtype == torch.bool
    assert net.norm.initialised
    logits = net(torch.from_numpy(np.asarray(data.x)))
    accuracy = (logits.argmax(1).numpy() == data.y).mean()
    assert result.metrics.to_pylist()[-1]["test_accuracy"] == accuracy
    torch.testing.assert_close(dict(net.state_dict()), exported, rtol=0, atol=0)
    for kept in result.directory.glob("*.safetensors"):
        assert safetensors.torch.load_file(kept)["norm.initialised"], kept


@pytest.mark.parametrize("source", ["file", "scenario"])
def test_a_start_takes_over_flags_and_counters(source: str, tmp_path: Path) -> None:
    net = initial()
    for client in COHORTS[0]:
        train(net, client, 1)
    phase = TABLES["phases"][0] | {"schedule": "relay", "rounds": 1}
    before = tmp_path / "before.toml"
    before.write_text(
        f"""
        seed = {SEED}
        model = "{MODEL}"
        data = {{ name = "tests.algorithms.scene:people", options = {{ number = {len(SIZES)} }} }}
        evaluation = {{ every = 1 }}
        [[phases]]
        name = "federated"
        schedule = "relay"
        rounds = 1
        cohort = {{ explicit = [[0, 3, 8]] }}
        local = {{ epochs = 2, batch_size = 4, lr = 0.3 }}
        """
    )
    if source == "scenario":
        start = {"scenario": str(before)}
    else:
        first = rayfl.run(before, backend="inline", out=tmp_path / "first", console=Console(quiet=True))
        file = first.directory / "model.safetensors"
        start = {"file": str(file)}
    for client in COHORTS[0]:
        train(net, client, 1)
    result = rayfl.run(
        TABLES | {"phases": [phase], "start": start},
        backend="inline", out=tmp_path / "second", starts=tmp_path / "starts", console=Console(quiet=True),
    )  # fmt: skip
    check_same(result.state_dict, net)


class LaterPhase(StartsItself):
    """The same names, but a counter of another type and a flag more, in the head."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.norm.seen = torch.zeros(2, dtype=torch.int32)
        self.add_module("read_out", nn.Sequential(nn.Linear(6, num_classes), FromFirstBatch(num_classes)))


def test_a_later_phase_takes_over_what_agrees_in_name_shape_and_type() -> None:
    first, later = (
        InitialModel(m.vector.numpy(), m.layout, "read_out", discrete=as_arrays(m.discrete()))
        for m in map(cpu, (StartsItself, LaterPhase))
    )
    values = {
        "norm.initialised": np.array(True),
        "norm.seen": np.array([3, 40]),
        "read_out.1.initialised": np.array(True),
    }
    taken = later.take_discrete(values)
    assert taken["norm.initialised"]
    assert taken["norm.seen"].tolist() == [0, 0]
    assert taken["read_out.1.initialised"]
    assert not later.take_discrete(values, fresh_head=True)["read_out.1.initialised"]
    handover = later.handover(first)
    assert "norm.initialised" in handover.taken
    assert {"norm.seen", "read_out.1.initialised"} < set(handover.fresh)


def cpu(kind: type[nn.Module]) -> FlatModel:
    return FlatModel(kind(CLASSES), torch.device("cpu"))


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_second_phase_goes_on_with_the_buffers_of_the_first(hosts: int) -> None:
    one = TABLES["phases"][0]
    phases = [one | {"name": "relay", "schedule": "relay", "rounds": 1}, one | {"rounds": 2}]
    job, model = prepared("fedavg", SETTING, model=MODEL, phases=phases)
    sent, _ = run_on_hosts(job, hosts)
    net = initial()
    for client in COHORTS[0]:
        train(net, client, 1)
    assert split(sent)[1]["norm.initialised"]
    # every update of the second phase counts on from what the relay left
    largest = max(COHORTS[0], key=lambda client: SIZES[client]), max(COHORTS[1], key=lambda client: SIZES[client])
    seen = net.norm.seen + sum(2 * torch.tensor([ceil(SIZES[c] / 4), SIZES[c]]) for c in largest)
    assert split(sent)[1]["norm.seen"].tolist() == seen.tolist()
    assert model.discrete_names == NAMES


DP: dict[str, dict[str, Any]] = {
    "local.dp": {"local": LOCAL | {"dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp"}}},
    "dp": {"dp": {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01}, "cohort": 3},
}


class Alarm(nn.Module):
    """A flag that no common input raises."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("raised", torch.tensor(0, dtype=torch.int16))
        self.raised: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and x.detach().abs().max() > RARE:
            self.raised.fill_(1)
        return x


RARE = float(np.abs(np.asarray(people().train.x)).max(axis=1).mean()) + 0.7
"""Above what the samples have that are tried before the run, and below the largest of the others."""


class Alarmed(nn.Module):
    """Logistic regression with an alarm."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.alarm, self.read_out = Alarm(), nn.Linear(INPUTS, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(self.alarm(x))
        return logits


@pytest.mark.parametrize("key", DP)
def test_differential_privacy_refuses_a_network_whose_flags_training_changes(key: str) -> None:
    expected = rf"^phases\.federated\.{key}: training changes buffer 'norm.initialised' of model StartsItself"
    with pytest.raises(ScenarioError, match=expected):
        job_of(UNIFORM, DP[key])


@pytest.mark.parametrize("key", DP)
def test_differential_privacy_ends_an_update_in_which_a_flag_changes(key: str) -> None:
    tried = np.abs(np.asarray(people().train.x))[[0, 1, len(people().train) // 2, -1]]
    assert tried.max() < RARE < np.abs(np.asarray(people().train.x)).max()
    job, _ = prepared(
        UNIFORM, Setting((tuple(range(12)),), 4, LOCAL), DP[key] | {"cohort": 12}, model=f"{__name__}:Alarmed"
    )
    with pytest.raises(ClientError, match=r"dp: training changes buffer 'alarm.raised' of model Alarmed"):
        run_on_hosts(job, 1)


@pytest.mark.parametrize("key", DP)
def test_differential_privacy_accepts_flags_that_never_change(key: str) -> None:
    job, _ = prepared(UNIFORM, Setting(COHORTS, 1, LOCAL), DP[key], model=f"{__name__}:Still")
    sent, _ = run_on_hosts(job, 2)
    assert split(sent)[1]["alarm.raised"] == 0


class Still(Alarmed):
    """Its alarm is in evaluation mode for good."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(x)
        return logits


class StartsOnce(nn.Module):
    """Logistic regression whose first batch sets its biases, and raises a flag that nothing lowers."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.read_out = nn.Linear(INPUTS, num_classes)
        self.register_buffer("initialised", torch.tensor(False))
        self.initialised: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.initialised:
            with torch.no_grad():
                self.read_out.bias.copy_(-self.read_out(x).mean(dim=0))
                self.initialised.fill_(True)
        logits: torch.Tensor = self.read_out(x)
        return logits


@pytest.mark.parametrize("key", DP)
def test_differential_privacy_accepts_a_layer_that_the_start_has_initialised(key: str, tmp_path: Path) -> None:
    net = StartsOnce(CLASSES)
    torch.save(net.state_dict(), tmp_path / "as_built.pt")
    net(torch.from_numpy(np.array(people().train.x[:40])).float())
    torch.save(net.state_dict(), tmp_path / "initialised.pt")
    phase = TABLES["phases"][0] | {"algorithm": UNIFORM, "rounds": 1} | DP[key]
    tables = TABLES | {"model": f"{__name__}:StartsOnce", "phases": [phase]}

    def run(**changes: Any) -> rayfl.Result:
        return rayfl.run(tables | changes, backend="inline", out=tmp_path, console=Console(quiet=True))

    assert run(start={"file": str(tmp_path / "initialised.pt")}).state_dict["initialised"]
    for start in ({}, {"start": {"file": str(tmp_path / "as_built.pt")}}):
        with pytest.raises(ScenarioError, match=rf"\.{key}: training changes buffer 'initialised'"):
            run(**start)


def test_differential_privacy_accepts_a_layer_that_an_earlier_phase_has_initialised() -> None:
    one = TABLES["phases"][0] | {"algorithm": UNIFORM, "rounds": 1}
    phases = [one | {"name": "open"}, one | DP["dp"]]
    job, _ = prepared(UNIFORM, SETTING, model=f"{__name__}:StartsOnce", phases=phases)
    sent, _ = run_on_hosts(job, 2)
    assert split(sent)[1]["initialised"]
