"""Choosing the samples of each client, given how many it gets of each class."""

from __future__ import annotations

import numpy as np

from rayfl.data.dataset import Shards


def cut(proportions: np.ndarray, size: int) -> np.ndarray:
    """Cuts a class at floor(cumsum(proportions) * size).

    Args:
        proportions: [clients] float64, not all zero; they need not sum to 1.
        size: Number of samples of the class.

    Returns:
        [clients] int64 that sum to `size`.
    """
    cumulated = np.cumsum(proportions)
    # Dividing by the last sum makes it exactly 1, so that rounding loses no sample.
    return np.diff(np.floor(cumulated / cumulated[-1] * size).astype(np.int64), prepend=0)


def deal(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Shards:
    """Deals random samples of every class to the clients.

    Args:
        labels: [n] int64.
        counts: [classes, clients] int64, samples of each class for each client; they must use up every class.
        rng: Random generator.
    """
    clients = counts.shape[1]
    owner = np.empty(len(labels), np.int64)
    owner[shuffled_by_label(labels, rng)] = np.repeat(np.tile(np.arange(clients), len(counts)), counts.ravel())
    return Shards.by_owner(owner, clients)


def shuffled_by_label(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns all rows class by class, in random order within each class: [n] int64."""
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def equal_sizes(rows: int, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Returns [clients] int64 that sum to `rows` and differ by at most one; random clients get the larger sizes."""
    sizes = np.full(clients, rows // clients)
    sizes[rng.permutation(clients)[: rows % clients]] += 1
    return sizes
