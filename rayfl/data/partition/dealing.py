"""From how many rows of each class a client gets, to which ones."""

from __future__ import annotations

import numpy as np

from rayfl.data.dataset import Shards


def cut(proportions: np.ndarray, size: int) -> np.ndarray:
    """[clients] int64 that sum to `size`: a class cut at floor(cumsum(proportions) * size)."""
    cumulated = np.cumsum(proportions)
    # Dividing by the last sum makes it exactly 1, so that no row is lost to rounding.
    return np.diff(np.floor(cumulated / cumulated[-1] * size).astype(np.int64), prepend=0)


def deal(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Shards:
    """Random rows of every class in the numbers of `counts`, [classes, clients]; they use up every class."""
    clients = counts.shape[1]
    owner = np.empty(len(labels), np.int64)
    owner[shuffled_by_label(labels, rng)] = np.repeat(np.tile(np.arange(clients), len(counts)), counts.ravel())
    return Shards.by_owner(owner, clients)


def shuffled_by_label(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[n] int64: all rows, class by class, in random order within a class."""
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def equal_sizes(rows: int, clients: int, rng: np.random.Generator) -> np.ndarray:
    """[clients] int64 that sum to `rows`; where that does not divide, random clients have one more."""
    sizes = np.full(clients, rows // clients)
    sizes[rng.permutation(clients)[: rows % clients]] += 1
    return sizes
