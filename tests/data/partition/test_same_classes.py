"""Test samples dealt to the clients that train on their class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.data import Data
from rayfl.config.execution import Evaluation
from rayfl.config.section import Named
from rayfl.data.dataset import Shards
from rayfl.data.partition.split import same_classes
from rayfl.data.store import ShardStore, build_store
from rayfl.engine.plan.slices import cut

_RNG = np.random.default_rng(5)
X, Y = _RNG.integers(0, 256, (400, 2, 2, 1), np.uint8), np.arange(400) % 10
TEST_X, TEST_Y = _RNG.integers(0, 256, (103, 2, 2, 1), np.uint8), np.arange(103) % 10
DATA = (X, Y, TEST_X, TEST_Y)


def _store(partition: str, seed: int = 0, **options: int) -> ShardStore:
    config = Data(
        name="tests.data.partition.test_same_classes:DATA", clients=20, partition=Named(name=partition, **options)
    )
    return build_store(config, seed, Path(), Path())


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=60),
    st.lists(st.integers(0, 6), max_size=60),
    st.integers(0, 99),
)
def test_every_test_row_of_a_class_goes_to_one_holder_and_shares_differ_by_one(
    rows: list[tuple[int, int]], tested: list[int], seed: int
) -> None:
    labels, owner = (np.array(column) for column in zip(*rows, strict=True))
    test_labels = np.array(tested, np.int64)
    dealt = same_classes(labels, Shards.by_owner(owner, 6), test_labels, np.random.default_rng(seed))
    assert len(dealt) == 6
    assert len(set(dealt.rows.tolist())) == len(dealt.rows)
    assert sorted(dealt.rows) == np.flatnonzero(np.isin(test_labels, labels)).tolist()
    for label in set(labels.tolist()):
        counts = [int((test_labels[dealt[client]] == label).sum()) for client in range(6)]
        holders = {int(client) for client in owner[labels == label]}
        assert all(counts[client] == 0 for client in range(6) if client not in holders)
        held = [counts[client] for client in holders]
        assert max(held) - min(held) <= 1


def test_shards_test_on_the_classes_that_they_train_on() -> None:
    store = _store("shards", shards_per_client=2)
    assert store.test_shards is not None
    assert store.test_shards.sizes.sum() == 103
    for client in range(20):
        trained = set(store.train.y[store.train_shards[client]].tolist())
        tested = set(store.test.y[store.test_shards[client]].tolist())
        assert tested == trained


def test_test_samples_are_ordered_by_client_for_evaluation() -> None:
    store = _store("shards")
    assert store.test_shards is not None
    np.testing.assert_array_equal(store.test_shards.rows, np.arange(103))
    pairs = {(x.tobytes(), int(y)) for x, y in zip(np.asarray(store.test.x), store.test.y, strict=True)}
    assert pairs == {(x.tobytes(), int(y)) for x, y in zip(TEST_X, TEST_Y, strict=True)}
    pieces = cut(Evaluation(per_client=True), store)
    assert [piece.client for piece in pieces] == list(range(20))
    assert [piece.stop - piece.start for piece in pieces] == store.test_shards.sizes.tolist()


def test_classes_that_no_client_trains_on_stay_in_the_test_set_without_a_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.data.partition.test_same_classes.DATA", (X[Y < 9], Y[Y < 9], TEST_X, TEST_Y))
    store = _store("shards")
    assert store.test_shards is not None
    assert len(store.test) == 103
    assert store.test_shards.sizes.sum() == 93
    assert set(store.test.y[93:].tolist()) == {9}


def test_the_same_seed_deals_alike_and_another_does_not() -> None:
    first, again, other = (_store("shards", seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.test.y, again.test.y)
    np.testing.assert_array_equal(np.asarray(first.test.x), np.asarray(again.test.x))
    assert not np.array_equal(first.test.y, other.test.y)


def test_other_partitions_leave_the_test_set_alone() -> None:
    store = _store("iid")
    assert store.test_shards is None
    np.testing.assert_array_equal(np.asarray(store.test.x), TEST_X)
