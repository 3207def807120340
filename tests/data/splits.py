"""Shared by tests of partitioners: labels to split, and properties of every split."""

import numpy as np
from hypothesis import strategies as st

from rayfl.data.dataset import Shards


def assert_every_row_is_used_once(split: Shards, rows: int, clients: int) -> None:
    assert len(split) == clients
    assert split.offsets[0] == 0
    assert split.offsets[-1] == rows
    np.testing.assert_array_equal(np.sort(split.rows), np.arange(rows))
    assert (split.sizes >= 0).all()


def some_labels(rows: int, classes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, rows)


def fashion_mnist_labels() -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))


def equal(a: Shards, b: Shards) -> bool:
    return np.array_equal(a.rows, b.rows) and np.array_equal(a.offsets, b.offsets)


populations = st.integers(1, 60).flatmap(lambda clients: st.tuples(st.just(clients), st.integers(clients, 400)))
seeds = st.integers(0, 2**32)
