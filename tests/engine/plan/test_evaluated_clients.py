"""`evaluation.clients`: every evaluated round is scored on the test samples of a few clients, drawn for it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.execution import Evaluation
from rayfl.data.dataset import Samples, Shards
from rayfl.data.held_out import HeldOut
from rayfl.engine.events import Evaluated
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.slices import Slice, Slices, cut, slices_of_round
from rayfl.errors import ScenarioError
from tests.algorithms.scene import PLAIN, SIZES, prepared
from tests.engine.scenes import continued, defined, run_on_hosts, snapshot_after, without_clock


def evaluations(hosts: int, **evaluation: Any) -> list[Evaluated]:
    algorithm = "ditto" if "client_model" in evaluation else "fedavg"
    _, events = run_on_hosts(prepared(algorithm, PLAIN, evaluation={"every": 1, **evaluation})[0], hosts)
    return [event for event in events if isinstance(event, Evaluated)]


OTHERS: list[dict[str, Any]] = [
    {},
    {"client_model": "personal"},
    {"personalize": {"lr": 0.1}},
    {"samples": 15},
]


@pytest.mark.parametrize("others", OTHERS, ids=lambda others: ", ".join(others) or "alone")
def test_drawn_clients_have_the_scores_that_they_have_among_all(others: dict[str, Any]) -> None:
    everybody = evaluations(1, per_client=True, **others)
    cohorts = set()
    for sampled, full in zip(evaluations(2, clients=4, **others), everybody, strict=True):
        by_client = {score.client: score for score in full.clients}
        assert len({score.client for score in sampled.clients}) == len(sampled.clients) == 4
        assert all(score == by_client[score.client] for score in sampled.clients)
        assert sampled.samples == sum(score.samples for score in sampled.clients)
        correct = sum(defined(score.scores["accuracy"]) * score.samples for score in sampled.clients)
        assert sampled.scores["test_accuracy"] == pytest.approx(correct / sampled.samples)
        cohorts.add(tuple(score.client for score in sampled.clients))
    assert len(cohorts) > 1, "others are drawn in other rounds"


def test_every_client_is_drawn_as_often_as_any_other() -> None:
    slices = Slices.of(Slice(start, start + 1, start // 3) for start in range(30))
    counts: Counter[int] = Counter()
    for round in range(1, 1001):
        chosen = slices_of_round(slices, Evaluation(clients=3), 5, RoundIndex(0, round, round))
        assert len(chosen) == 9
        counts.update({part.client for part in chosen})
    expected = 300.0
    assert sum((counts[client] - expected) ** 2 / (expected * 0.7) for client in range(10)) < 33


@given(st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any), st.integers(1, 4), st.booleans())
def test_slices_hold_samples_of_one_client_and_of_a_batch_at_most(
    sizes: list[int], batch: int, personalize: bool
) -> None:
    number = sum(sizes)
    samples, shards = (
        Samples(np.zeros((number, 1)), np.zeros(number)),
        Shards.by_owner(np.repeat(np.arange(len(sizes)), sizes), len(sizes)),
    )
    common = HeldOut(Samples(np.zeros((7, 1)), np.zeros(7)))
    store: Any = SimpleNamespace(test=samples, test_shards=shards, held_out={"further": common}, bank=common.samples)
    local = {"lr": 0.1} if personalize else None
    config = Evaluation.model_validate({"batch_size": batch, "per_client": True, "personalize": local})
    expected = [Slice(first, min(first + batch, 7), set="bank") for first in range(0, 7, batch)]
    ends = np.cumsum(sizes).tolist()
    for client, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        starts = range(end - size, end, batch)
        expected += [Slice(first, min(first + batch, end), client) for first in starts]
    expected += [Slice(first, min(first + batch, 7), set="further") for first in range(0, 7, batch)]
    if personalize:
        owned = [(client, size, end) for client, (size, end) in enumerate(zip(sizes, ends, strict=True)) if size]
        expected += [Slice(end - size, end, client, personalized=True) for client, size, end in owned]
    slices = cut(config, store)
    assert list(slices) == expected == list(Slices.of(expected))
    assert list(slices[1::2]) == expected[1::2]
    assert list(slices[slices.client >= 0]) == [part for part in expected if part.client >= 0]


def test_hosts_and_snapshots_do_not_change_who_is_drawn() -> None:
    job, _ = prepared("fedavg", PLAIN, evaluation={"every": 1, "clients": 3})
    model, whole = run_on_hosts(job, 1)
    other, events = run_on_hosts(job, 3)
    assert np.array_equal(model, other)
    assert without_clock(events) == without_clock(whole)
    _, later = continued(job, *snapshot_after(job, 2, 2), hosts=3)
    assert without_clock(later) == without_clock(whole)[-len(later) :]


@pytest.mark.parametrize(
    ("evaluation", "data", "complaint"),
    [
        (
            {"clients": len(SIZES)},
            {},
            r"evaluation.clients: must be below 12, the number of clients with test samples \(got 12\); leave it out",
        ),
        ({"clients": 2}, {"clients": 12, "partition": "iid"}, r"evaluation.clients needs test samples by client"),
    ],
)
def test_a_sample_that_cannot_be_drawn_is_rejected(
    evaluation: dict[str, Any], data: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        prepared("fedavg", PLAIN, evaluation=evaluation, data={"name": "tests.algorithms.scene:people", **data})


def test_only_clients_with_test_samples_are_drawn_and_samples_without_owner_stay() -> None:
    own = [Slice(0, 4, client=0), Slice(0, 3, client=0, set="validation"), Slice(3, 6, client=1, set="validation")]
    further = Slice(0, 9, set="another_domain")
    config = Evaluation(clients=1)
    for round in range(1, 9):
        left = slices_of_round(Slices.of([*own, further]), config, 0, RoundIndex(0, round, round))
        assert list(left) == [own[0], own[1], further]
