"""FedMeta against autograd through the inner step, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.events import RoundDone
from rayfl.streams import client_stream
from tests.algorithms.reference import (
    PlainUpdate,
    Vector,
    assert_equal,
    assert_equal_and_unlike,
    cross_entropy,
    gradient,
    mean,
    rounds,
)
from tests.algorithms.scene import FULL, LOUD, PLAIN, SEED, Setting, prepared, supported, trained
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, run_on_hosts, snapshot_of

META_LR = 0.6


def fedmeta_of(setting: Setting, **options: Any) -> Vector:
    algorithm = {"name": "fedmeta", "meta_lr": META_LR, **options}
    return trained(algorithm, replace(setting, local=supported(algorithm, setting.local)))


def halves(update: PlainUpdate, share: float = 0.2, round: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the client's support and query samples; round: 0 for a split of all rounds."""
    order = client_stream(SEED, "support and query", 0, round, update.client).permutation(update.n)
    number = min(max(1, int(np.round(share * update.n))), update.n - 1)
    return order[number:], order[:number]


def loss(update: PlainUpdate, rows: np.ndarray, w: Vector) -> Vector:
    """In evaluation mode."""
    return cross_entropy(w, update.x[rows], update.y[rows])


def meta_gradients(
    update: PlainUpdate, w: Vector, rates: Vector, order: str, parts: Sequence[np.ndarray]
) -> tuple[Vector, Vector, float]:
    """By autograd: of the query loss after the inner step, with respect to w and to the rates; and that loss."""
    support, query = parts
    w, rates = w.clone().requires_grad_(), rates.clone().requires_grad_()
    (inner,) = torch.autograd.grad(loss(update, support, w), w, create_graph=order == "exact")
    query_loss = loss(update, query, w - rates * inner)
    of_model, of_rates = torch.autograd.grad(query_loss, (w, rates))
    return of_model, of_rates, float(query_loss.detach())


def fedmeta(
    setting: Setting, variant: str = "maml", order: str = "exact", share: float = 0.2, split: str = "client"
) -> tuple[Vector, Vector, list[float]]:
    """The final model, the rates, and each round's mean query loss."""
    w, losses = setting.initial(), []
    rates = torch.full_like(w, setting.local["lr"])
    for number, cohort in enumerate(rounds(setting), start=1):
        if variant == "maml":
            rates = torch.full_like(w, cohort[0].lr)
        parts = [halves(update, share, number if split == "round" else 0) for update in cohort]
        answers = [meta_gradients(update, w, rates, order, part) for update, part in zip(cohort, parts, strict=True)]
        w = w - META_LR * mean([of_model for of_model, _, _ in answers])
        if variant == "meta_sgd":
            rates = rates - META_LR * mean([of_rates for _, of_rates, _ in answers])
        losses.append(float(np.mean([query_loss for _, _, query_loss in answers])))
    return w, rates, losses


def query_sgd(setting: Setting) -> Vector:
    """FedSGD on the query sets."""
    w = setting.initial()
    for cohort in rounds(setting):
        queries = [halves(update)[1] for update in cohort]
        gradients = [
            gradient(cross_entropy, w, update.x[query], update.y[query])
            for update, query in zip(cohort, queries, strict=True)
        ]
        w = w - META_LR * mean(gradients)
    return w


@pytest.mark.parametrize(
    ("setting", "variant", "order"),
    [(PLAIN, "maml", "first"), (LOUD, "maml", "exact"), (FULL, "meta_sgd", "first"), (LOUD, "meta_sgd", "exact")],
    ids=["first", "exact", "rates first", "rates exact"],
)
def test_fedmeta_is_what_autograd_through_the_inner_step_gives(setting: Setting, variant: str, order: str) -> None:
    """Clients differ in size; each counts once. `first` differs from `exact` by what the Hessian makes."""
    ours = fedmeta_of(setting, variant=variant, order=order)
    expected, _, _ = fedmeta(setting, variant, order)
    other, _, _ = fedmeta(setting, variant, "exact" if order == "first" else "first")
    assert_equal_and_unlike(ours, expected, other, setting)
    assert_equal_and_unlike(ours, expected, query_sgd(setting), setting)


@pytest.mark.parametrize("order", ["first", "exact"])
def test_the_servers_rates_are_learned_by_their_exact_gradient(order: str) -> None:
    algorithm = {"name": "fedmeta", "variant": "meta_sgd", "order": order, "meta_lr": META_LR}
    job, model = prepared(algorithm, replace(PLAIN, local={"lr": PLAIN.local["lr"]}))
    scheduler, _ = cast(job, 2)
    list(scheduler.run())
    store = MemoryStore()
    kept = store.read(snapshot_of(scheduler, store).server.latest.stored)["state/rates"]
    assert kept.dtype == np.float64
    assert len(kept) == len(model.vector), "there are no buffers"
    state = model.state_dict(torch.from_numpy(kept.astype(np.float32)))
    ours = torch.cat([part.flatten() for part in state.values()]).double()
    _, expected, _ = fedmeta(PLAIN, "meta_sgd", order)
    start = PLAIN.local["lr"]
    assert (expected - start).norm() > 0.01
    assert (ours - expected).norm() < 1e-5 * (expected - start).norm() + 1e-6


def test_without_an_inner_step_maml_is_fedsgd_on_the_query_sets() -> None:
    """A rate so small that no float32 parameter moves."""
    still = PLAIN.with_local(lr=1e-30)
    assert_equal_and_unlike(fedmeta_of(still), query_sgd(still), fedmeta(PLAIN)[0], PLAIN)


@pytest.mark.parametrize("options", [{"query_share": 0.5}, {"split": "round"}, {"query_share": 0.01}], ids=str)
def test_support_and_query_are_split_as_the_options_say(options: dict[str, Any]) -> None:
    split = {"share": options.get("query_share", 0.2), "split": options.get("split", "client")}
    expected, _, _ = fedmeta(PLAIN, **split)
    assert_equal_and_unlike(fedmeta_of(PLAIN, **options), expected, fedmeta(PLAIN)[0], PLAIN)


def test_the_adapted_models_query_loss_is_reported() -> None:
    algorithm = {"name": "fedmeta", "variant": "meta_sgd", "meta_lr": META_LR}
    job, _ = prepared(algorithm, replace(PLAIN, local=supported(algorithm, PLAIN.local)))
    done = [event for event in run_on_hosts(job, 2)[1] if isinstance(event, RoundDone)]
    _, _, expected = fedmeta(PLAIN, "meta_sgd")
    assert [event.scalars["query_loss"] for event in done] == pytest.approx(expected, rel=1e-5)
    assert {item.client for item in done[0].client_scalars} == set(PLAIN.cohorts[0])


def test_the_exact_gradient_is_the_default_and_that_of_maml() -> None:
    assert torch.equal(fedmeta_of(PLAIN), fedmeta_of(PLAIN, variant="maml", order="exact"))


@pytest.mark.parametrize("variant", ["maml", "meta_sgd"])
def test_losses_are_taken_in_pieces_where_there_are_many_samples(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.engine.executors.executor.SAMPLES_AT_ONCE", 3)
    assert_equal(fedmeta_of(PLAIN, variant=variant), fedmeta(PLAIN, variant)[0], PLAIN)
