"""`evaluation.samples`: a part of the test samples, drawn once, the same in all rounds and on all hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.config.execution import Evaluation
from rayfl.config.scenario import Scenario
from rayfl.data.store import ShardStore
from rayfl.engine.events import Evaluated
from rayfl.engine.plan.slices import cut, draw_test_samples
from rayfl.errors import ScenarioError
from rayfl.runs.environment import describe_environment
from rayfl.runs.preparation import prepare
from tests.engine.scenes import FEDERATED, prepared, run_on_hosts, tables


@pytest.fixture(scope="module")
def store() -> ShardStore:
    """Eight writers, each with test samples."""
    return prepared().result.store


def drawn(store: ShardStore, seed: int = 7, **evaluation: Any) -> ShardStore:
    return draw_test_samples(Evaluation.model_validate(evaluation), store, seed)


def rows_of(part: ShardStore, whole: ShardStore) -> list[int]:
    """Which of all test samples were drawn; images of handwriting differ."""
    places = {np.asarray(whole.test.x[row : row + 1]).tobytes(): row for row in range(len(whole.test))}
    assert len(places) == len(whole.test)
    return [places[np.asarray(part.test.x[row : row + 1]).tobytes()] for row in range(len(part.test))]


def test_so_many_different_samples_are_drawn_with_their_labels_in_their_order(store: ShardStore) -> None:
    part = drawn(store, samples=50)
    rows = rows_of(part, store)
    assert len(set(rows)) == 50
    assert rows == sorted(rows)
    assert np.array_equal(part.test.y, store.test.y[rows])
    assert sum(piece.stop - piece.start for piece in cut(Evaluation(), part)) == 50


def test_the_seed_alone_decides_which(store: ShardStore) -> None:
    one, same, other = (rows_of(drawn(store, seed, samples=50), store) for seed in (7, 7, 8))
    assert one == same != other


def test_samples_stay_with_their_clients(store: ShardStore) -> None:
    part = drawn(store, samples=50)
    assert part.test_shards is not None
    assert store.test_shards is not None
    rows = np.array(rows_of(part, store))
    for client in range(store.num_clients):
        owned = set(store.test_shards[client].tolist())
        assert owned & set(rows.tolist()) == set(rows[part.test_shards[client]].tolist())


def test_every_client_that_is_scored_keeps_a_sample(store: ShardStore) -> None:
    for seed in range(20):
        part = drawn(store, seed, samples=9, per_client=True)
        assert part.test_shards is not None
        assert len(part.test) == 9
        assert part.test_shards.sizes.min() >= 1
        assert len(set(rows_of(part, store))) == 9


def test_fewer_samples_than_clients_to_score_are_rejected(store: ShardStore) -> None:
    with pytest.raises(ScenarioError, match=r"evaluation\.samples: 7 test samples are too few to score 8 clients"):
        drawn(store, samples=7, personalize={})
    assert len(drawn(store, samples=7).test) == 7


def test_as_many_as_there_are_is_all_of_them(store: ShardStore) -> None:
    assert drawn(store, samples=len(store.test)) is store
    assert drawn(store, samples=10**9) is store


def test_it_is_said_in_the_summary_and_in_the_records(store: ShardStore) -> None:
    job, _ = prepare(Scenario.from_tables(tables(evaluation={"samples": 50})), Path("no-data-here"))
    assert f"50 of {len(store.test):,} test samples" in job.result.store.summary()
    data = describe_environment(job, "inline", [])["data"]
    assert (data["test_samples"], data["evaluated_samples"]) == (len(store.test), 50)
    assert " of " not in store.summary()


def test_all_rounds_and_any_number_of_hosts_score_the_same_samples() -> None:
    network = {"name": "mlp", "hidden": [8]}
    job = prepared(model=network, phases=[FEDERATED], evaluation={"samples": 50, "batch_size": 8, "per_client": True})
    scored = [[event for event in run_on_hosts(job, hosts)[1] if isinstance(event, Evaluated)] for hosts in (1, 3)]
    assert scored[0] == scored[1]
    assert {event.samples for event in scored[0]} == {50}
    sizes = [[score.samples for score in event.clients] for event in scored[0]]
    assert sizes[0] == sizes[-1]
