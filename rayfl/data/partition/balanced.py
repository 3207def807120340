"""Label skew across clients of equal size."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl.data.dataset import Shards
from rayfl.data.partition.client_count import client_count
from rayfl.data.partition.dealing import deal, equal_sizes
from rayfl.data.partition.dirichlet import Concentration
from rayfl.errors import ScenarioError

SWEEPS = 100


def dirichlet_balanced(
    labels: np.ndarray,
    num_classes: int,
    clients: PositiveInt | None,
    rng: np.random.Generator,
    alpha: Concentration,
    tries: PositiveInt = 100,
) -> Shards:
    """Splits every class over all clients in Dir(alpha) proportions, scaled so that all clients have the same size.

    The matrix of proportions is scaled 100 times, alternately by client and by class, towards the required sums, and
    then rounded down to whole samples. The samples left over go at random to the clients that are short of some, so
    every sample is used and sizes differ by at most one. A draw that is still unbalanced after these 100 sweeps is
    discarded and redrawn, up to `tries` draws in all. With ten classes, alpha = 0.1
    never needed a second draw; alpha = 0.01 sometimes did with 100 clients, and nearly always with ten.

    Args:
        labels: [n] int64 in 0..num_classes-1.
        num_classes: Number of classes.
        clients: Number of clients.
        rng: Random generator.
        alpha: Concentration of the Dirichlet distribution.
        tries: Maximum number of draws.

    Raises:
        ScenarioError: No number of clients is given, or none of `tries` draws could be balanced.
        DataError: There are more clients than samples.

    Source: Lubana et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML
    2022. Its code also rounds down, but drops the samples left over.
    """
    count = client_count(clients, len(labels))
    class_sizes = np.bincount(labels, minlength=num_classes)
    sizes = equal_sizes(len(labels), count, rng)
    for _ in range(tries):
        proportions = rng.dirichlet(np.full(count, alpha), num_classes)
        counts = np.floor(_scaled(proportions, class_sizes, sizes)).astype(np.int64)
        unused, lacking = class_sizes - counts.sum(axis=1), sizes - counts.sum(axis=0)
        if unused.min() >= 0 and lacking.min() >= 0:
            takers = rng.permutation(np.repeat(np.arange(count), lacking))
            np.add.at(counts, (np.repeat(np.arange(num_classes), unused), takers), 1)
            return deal(labels, counts, rng)
    raise ScenarioError(
        f"data.partition: none of {tries} Dirichlet draws could be scaled to {count} clients of equal size; "
        f"choose a larger alpha (now {alpha:g}), another number of clients, or more tries"
    )


def _scaled(proportions: np.ndarray, class_sizes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """[classes, clients] with row sums `class_sizes` and column sums close to `sizes`; zeros stay zeros."""
    rows = proportions
    for _ in range(SWEEPS):
        for axis, wanted in ((0, sizes), (1, class_sizes[:, None])):
            held = rows.sum(axis=axis, keepdims=True)
            # A sum that is practically zero cannot be scaled up; it stays, and the draw counts as unbalanced.
            rows = rows * np.where(held > 1e-100, wanted / np.maximum(held, 1e-100), 1.0)
    return rows
