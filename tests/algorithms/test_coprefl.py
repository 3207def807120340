"""CoPreFL against the steps that its paper lists, in float64, with autograd through the loss that it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.data.store import ShardStore
from rayfl.engine.events import RoundDone
from rayfl.errors import ClientError, ScenarioError
from rayfl.streams import client_stream
from tests.algorithms.reference import (
    MODULE_OF,
    PlainUpdate,
    Vector,
    assert_equal,
    assert_equal_and_unlike,
    cross_entropy,
    fedavg,
    gradient,
    mean,
)
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, SEED, SIZES, Setting, prepared
from tests.engine.scenes import run_on_hosts

META_LR = 0.2
SERVER: dict[str, Any] = {"data": {"name": "tests.algorithms.scene:people", "server_share": 0.3}}
SERVER_POOL = len(SIZES) + 1
"""The number under which the server's samples draw."""

Samples = tuple[torch.Tensor, torch.Tensor]


def coprefl(**options: Any) -> dict[str, Any]:
    return {"name": "coprefl", "meta_lr": META_LR, **options}


def of_client(store: ShardStore, client: int) -> Samples:
    rows = store.train_shards[client]
    return torch.from_numpy(np.asarray(store.train.x)[rows]).double(), torch.from_numpy(store.train.y[rows])


def of_server(store: ShardStore) -> Samples:
    assert store.server is not None
    return torch.from_numpy(np.asarray(store.server.x)).double(), torch.from_numpy(store.server.y)


def split(samples: Samples, client: int, of_round: int, share: float) -> tuple[Samples, Samples]:
    """Support and query; of_round 0: the same in all rounds."""
    x, y = samples
    order = client_stream(SEED, "support and query", 0, of_round, client).permutation(len(y))
    number = min(max(1, round(share * len(y))), len(y) - 1)
    query, support = np.sort(order[:number]), np.sort(order[number:])
    return (x[support], y[support]), (x[query], y[query])


def update_on(
    samples: Samples, local: Mapping[str, Any], client: int, round: int, exchange: int = 0, setting: Setting = PLAIN
) -> PlainUpdate:
    """A client update that trains on these samples."""
    update = PlainUpdate(setting, 0, round)
    update.x, update.y = samples
    update._local = local
    update.lr = local["lr"] * local.get("lr_decay", 1.0) ** (round - 1)
    number, size = len(update.y), local["batch_size"]
    order = client_stream(SEED, "order", 0, round, client, exchange)
    passes = [order.permutation(number) for _ in range(local.get("epochs", 1))]
    update.batches = [rows[first : first + size] for rows in passes for first in range(0, number, size)]
    update.batches = update.batches[: local.get("steps")]
    return update


def printed_loss(w: Vector, queries: Sequence[Samples], gamma: float, total: str = "sum") -> torch.Tensor:
    losses = torch.stack([cross_entropy(w, x, y) for x, y in queries])
    first = losses.sum() if total == "sum" else losses.mean()
    return gamma * first + (1 - gamma) * ((losses - losses.mean()) ** 2).sum() / len(losses)


def reference(
    setting: Setting,
    store: ShardStore,
    *,
    gamma: float = 0.5,
    meta_lr: float = META_LR,
    total: str = "sum",
    share: float = 0.2,
    fresh_splits: bool = False,
    uniform: bool = False,
    at_server: bool = False,
    server_training: Mapping[str, Any] | None = None,
) -> Vector:
    w = setting.initial()
    for number in range(1, setting.rounds + 1):
        cohort = setting.cohorts[(number - 1) % len(setting.cohorts)]
        models, weights, queries = [], [], []
        for client in cohort:
            support = of_client(store, client)
            if not at_server:
                support, query = split(support, client, number if fresh_splits else 0, share)
                queries.append(query)
            models.append(update_on(support, setting.local, client, number, setting=setting).sgd(w))
            weights.append(1.0 if uniform else float(len(support[1])))
        if at_server:
            x, y = of_server(store)
            order = client_stream(SEED, "query sets", 0, number, SERVER_POOL, 1).permutation(len(y))
            queries = [(x[rows], y[rows]) for rows in np.array_split(order, len(cohort))]
        w = mean(models, weights).requires_grad_()
        (slope,) = torch.autograd.grad(printed_loss(w, queries, gamma, total), w)
        w = w.detach() - meta_lr * slope
        if server_training is not None:
            w = update_on(of_server(store), server_training, SERVER_POOL, number, exchange=2).sgd(w)
    return w


def ours(
    options: str | Mapping[str, Any], setting: Setting, hosts: int = 1, **changes: Any
) -> tuple[Vector, ShardStore]:
    phase = changes.pop("phase", {})
    job, model = prepared(options, setting, phase, **changes)
    vector, _ = run_on_hosts(job, hosts)
    flat = torch.cat([part.flatten() for part in model.state_dict(torch.from_numpy(vector)).values()]).double()
    return flat, job.result.store


@pytest.mark.parametrize(
    ("setting", "gamma"),
    [(FULL, 0.0), (EVERYTHING, 0.25), (PLAIN, 1.0)],
    ids=["the variance alone", "everything", "the sum alone"],
)
def test_scenario_one(setting: Setting, gamma: float) -> None:
    """Clients of unequal sizes, some of which never take part, or all of them."""
    found, store = ours(coprefl(gamma=gamma), setting)
    without = reference(setting, store, gamma=gamma, meta_lr=0.0)
    expected = reference(setting, store, gamma=gamma)
    assert_equal(found, expected, setting, tolerance=2e-5)
    assert float((expected - without).norm()) > 1e-2 * float((expected - setting.initial()).norm())


@pytest.mark.parametrize(("setting", "gamma"), [(PLAIN, 0.5), (EVERYTHING, 1.0)], ids=["plain", "everything"])
def test_scenario_two(setting: Setting, gamma: float) -> None:
    """Clients train on all of their samples; the server's are split anew every round among the participants."""
    found, store = ours(coprefl(gamma=gamma, queries="server"), setting, **SERVER)
    expected = reference(setting, store, gamma=gamma, at_server=True)
    without = reference(setting, store, meta_lr=0.0, at_server=True)
    assert_equal(found, expected, setting, tolerance=2e-5)
    assert float((expected - without).norm()) > 1e-2 * float((expected - setting.initial()).norm())


def test_options() -> None:
    for options, plain in (
        ({"total": "mean"}, {"total": "mean"}),
        ({"query_share": 0.4}, {"share": 0.4}),
        ({"split": "round"}, {"fresh_splits": True}),
        ({"weighting": "uniform"}, {"uniform": True}),
    ):
        found, store = ours(coprefl(**options), PLAIN)
        assert_equal_and_unlike(found, reference(PLAIN, store, **plain), reference(PLAIN, store), PLAIN)


def test_gamma_one_steps_by_the_plain_sum_of_query_gradients_and_its_mean_is_a_rate_of_one_participant() -> None:
    whole = {**coprefl(gamma=1.0), "meta_lr": META_LR / FULL.clients}
    assert_equal(ours(whole, FULL)[0], ours(coprefl(gamma=1.0, total="mean"), FULL)[0], FULL)


def test_a_meta_rate_of_zero_is_training_on_support() -> None:
    found, store = ours(coprefl(meta_lr=0.0), PLAIN)
    assert_equal_and_unlike(found, reference(PLAIN, store, meta_lr=0.0), fedavg(PLAIN), PLAIN)


def test_gamma_zero_has_weights_that_add_to_nothing() -> None:
    """Two participants: g_1 and g_2 weigh L_1 - L_2 and its opposite, so the step is along g_1 - g_2."""
    two = Setting(((3, 6),), rounds=1, local=PLAIN.local)
    moved, store = ours(coprefl(gamma=0.0), two)
    at, _ = ours(coprefl(gamma=0.0, meta_lr=0.0), two)
    queries = [split(of_client(store, client), client, 0, 0.2)[1] for client in (3, 6)]
    one, other = (gradient(cross_entropy, at, *query) for query in queries)
    step, along = moved - at, one - other
    assert float(step.norm()) > 1e-3
    assert float((step / step.norm()) @ (along / along.norm())) ** 2 == pytest.approx(1.0, abs=1e-4)


def test_the_loss_that_is_reported_is_that_of_the_query_sets() -> None:
    job, _ = prepared(coprefl(meta_lr=0.0), Setting(FULL.cohorts, rounds=1, local=PLAIN.local))
    _, events = run_on_hosts(job, 2)
    done = next(event for event in events if isinstance(event, RoundDone))
    store = job.result.store
    w = reference(Setting(FULL.cohorts, rounds=1, local=PLAIN.local), store, meta_lr=0.0)
    losses = [float(cross_entropy(w, *split(of_client(store, client), client, 0, 0.2)[1])) for client in range(12)]
    assert done.scalars["query_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert done.scalars["query_loss_variance"] == pytest.approx(np.var(losses), rel=1e-4)
    assert done.scalars["up_bytes_more_if_summed"] == 12 * 4 * 83


TRAINING: dict[str, Any] = {"steps": 5, "epochs": 2, "batch_size": 8, "lr": 0.3, "momentum": 0.5}


def test_coprefl_sgd_goes_on_with_steps_on_the_servers_samples() -> None:
    found, store = ours(coprefl(), PLAIN, phase={"server_training": TRAINING}, **SERVER)
    expected = reference(PLAIN, store, server_training=TRAINING)
    assert_equal_and_unlike(found, expected, reference(PLAIN, store), PLAIN)


@pytest.mark.parametrize("steps", [5, {"uniform": [5, 5]}], ids=str)
def test_the_server_takes_all_its_steps_however_few_samples_it_has(steps: Any) -> None:
    training = {"batch_size": 16, "lr": 0.3}
    found, store = ours("fedavg", PLAIN, phase={"server_training": {"steps": steps, **training}}, **SERVER)
    assert store.server is not None
    assert 2 * 16 < len(store.server) < 3 * 16  # two passes are not five steps
    expected = after_fedavg(store, {"steps": 5, "epochs": 2, **training})
    assert_equal_and_unlike(found, expected, after_fedavg(store, {"epochs": 1, **training}), PLAIN)


def test_epochs_that_are_given_limit_the_servers_steps() -> None:
    training = {"steps": 5, "epochs": 1, "batch_size": 16, "lr": 0.3}
    found, store = ours("fedavg", PLAIN, phase={"server_training": training}, **SERVER)
    expected = after_fedavg(store, {"epochs": 1, "batch_size": 16, "lr": 0.3})
    assert_equal_and_unlike(found, expected, after_fedavg(store, training | {"epochs": 2}), PLAIN)


def after_fedavg(store: ShardStore, training: Mapping[str, Any]) -> Vector:
    """FedAvg on the clients' samples, with training on the server's at the end of every round."""
    w = PLAIN.initial()
    for number in range(1, PLAIN.rounds + 1):
        models, weights = [], []
        for client in PLAIN.cohorts[(number - 1) % len(PLAIN.cohorts)]:
            samples = of_client(store, client)
            models.append(update_on(samples, PLAIN.local, client, number).sgd(w))
            weights.append(float(len(samples[1])))
        w = update_on(of_server(store), training, SERVER_POOL, number, exchange=1).sgd(mean(models, weights))
    return w


def refusal(options: str | Mapping[str, Any], setting: Setting = PLAIN, phase: Any = None, **changes: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        prepared(options, setting, phase or {}, **changes)
    return str(caught.value)


def test_impossible_settings_are_rejected_before_the_start() -> None:
    assert "gamma" in refusal(coprefl(gamma=1.5))
    assert "phases.federated.algorithm: the server has no samples; give it some with data.server_share" in refusal(
        coprefl(queries="server")
    )
    assert "phases.federated.server_training: the server has no samples" in refusal(
        "fedavg", phase={"server_training": TRAINING}
    )
    assert "query_share has no effect with queries = 'server'" in refusal(coprefl(queries="server", query_share=0.1))
    assert "total has no effect with gamma = 0" in refusal(coprefl(gamma=0.0, total="mean"))
    few: dict[str, Any] = {"data": {"name": "tests.algorithms.scene:people", "server_share": 0.05}}
    assert refusal(coprefl(queries="server"), FULL, **few) == (
        "phases.federated.algorithm: the server holds 6 samples, too few to split among 12 participants; use a larger "
        "data.server_share or a smaller cohort"
    )
    lonely: dict[str, Any] = {"data": {"name": f"{__name__}:lonely"}}
    assert refusal(coprefl(), **lonely) == (
        "phases.federated.algorithm: client 2 has 1 training sample, too few for a support and a query set; hold fewer "
        "samples out, use fewer or other clients, or a partition with a minimum"
    )
    assert refusal(coprefl(), Setting(((3,),), local=PLAIN.local)) == (
        "phases.federated.algorithm.gamma: the loss of a single participant has no variance; use a larger cohort"
    )
    assert "buffers = 'keep' needs queries of clients" in refusal(coprefl(queries="server", buffers="keep"))
    short = PLAIN.with_local(batch_size=1, epochs=1, unfreeze={"share": 1.0, "schedule": "code"})
    prepared("fedavg", short)
    assert "unfreez" in refusal(coprefl(query_share=0.5), short)


@pytest.mark.parametrize("algorithm", ["feddyn", "fedexp"])
def test_training_at_the_server_is_rejected_where_another_model_is_evaluated(algorithm: str) -> None:
    training = {"server_training": TRAINING}
    said = refusal({"name": algorithm}, phase=training, **SERVER)
    assert said.startswith("phases.federated.server_training: trains the global model, but eval_model = '")
    assert said.endswith("evaluates a different one; use eval_model = 'global'")
    prepared(algorithm, PLAIN, training | {"eval_model": "global"}, **SERVER)


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"optimizer": "adamww"}, "phases.federated.server_training.optimizer: "),
        ({"optimizer": {"name": "adamw", "beta": 1}}, "phases.federated.server_training.optimizer"),
        ({"sample_weights": "nonsense"}, "phases.federated.server_training.sample_weights"),
    ],
)
def test_options_of_training_at_the_server_are_checked_before_anything_starts(training: Any, said: str) -> None:
    assert refusal({"name": "fedavg"}, phase={"server_training": training}, **SERVER).startswith(said)


@pytest.mark.parametrize("queries", ["clients", "server"])
def test_parameters_that_a_phase_does_not_train_stay_unchanged(queries: str) -> None:
    found, _ = ours(coprefl(queries=queries), PLAIN, phase={"train": "head"}, **SERVER)
    initial = PLAIN.initial()
    head = torch.from_numpy(MODULE_OF == 2)
    assert torch.equal(found[~head], initial[~head])
    without, _ = ours(coprefl(queries=queries, meta_lr=0.0), PLAIN, phase={"train": "head"}, **SERVER)
    assert not torch.equal(found[head], without[head])


def test_query_losses_are_those_of_the_clients_own_buffers_where_they_keep_them() -> None:
    network: dict[str, Any] = {"model": "tests.algorithms.test_buffers:NormNet"}
    losses, setting = [], Setting(FULL.cohorts, 1, {"batch_size": "full", "lr": 0.3})
    for buffers in ("average", "keep", "reset"):
        job, _ = prepared(coprefl(meta_lr=0.0, buffers=buffers), setting, **network)
        _, events = run_on_hosts(job, 2)
        losses.append(next(event.scalars["query_loss"] for event in events if isinstance(event, RoundDone)))
    assert min(abs(losses[0] - losses[1]), abs(losses[0] - losses[2]), abs(losses[1] - losses[2])) > 1e-3


def lonely() -> Any:
    from dataclasses import replace

    from rayfl.data.dataset import NaturalClients, Shards
    from tests.algorithms.scene import people

    data = people()
    assert data.natural is not None
    owner = np.repeat(np.arange(12), SIZES)
    first = int(np.flatnonzero(owner == 2)[0])
    owner[(owner == 2) & (np.arange(len(owner)) > first)] = 3
    return replace(data, natural=NaturalClients(data.natural.names, Shards.by_owner(owner, 12), data.natural.test))


def test_errors_on_the_servers_samples_say_so() -> None:
    training = TRAINING | {"lr": 1e20, "weight_decay": 1e20}
    job, _ = prepared("fedavg", PLAIN, {"server_training": training}, **SERVER)
    with pytest.raises(ClientError, match="the server's samples"):
        run_on_hosts(job, 1)


def test_training_at_the_server_follows_any_algorithm() -> None:
    phase = {"server_training": TRAINING}
    for name in ("qfedavg", "scaffold"):
        job, _ = prepared(name, PLAIN, phase, **SERVER)
        trained_on, events = run_on_hosts(job, 2)
        plain, _ = run_on_hosts(prepared(name, PLAIN, **SERVER)[0], 2)
        assert not np.array_equal(trained_on, plain)
        losses = [event.scalars["server_train_loss"] for event in events if isinstance(event, RoundDone)]
        assert losses[-1] < losses[0]
