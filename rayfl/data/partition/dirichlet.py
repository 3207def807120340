"""Label skew: each class is spread over the clients in Dirichlet proportions."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from rayfl.data.dataset import Shards
from rayfl.data.partition.client_count import client_count
from rayfl.data.partition.dealing import cut, deal
from rayfl.errors import ScenarioError

Concentration = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""The parameter of a symmetric Dirichlet distribution: the smaller, the more skew."""


def dirichlet(
    labels: np.ndarray,
    num_classes: int,
    clients: PositiveInt | None,
    rng: np.random.Generator,
    beta: Concentration,
    min_size: NonNegativeInt = 10,
    tries: PositiveInt = 1000,
) -> Shards:
    """Class by class, Dir(beta) proportions among the clients that hold less than their even share so far.

    For class k: p ~ Dir(beta * 1); p_j = 0 for every client j that already holds at least n / N rows; p is
    rescaled and the class cut at floor(cumsum(p) * n_k). The whole draw is repeated until every client holds
    `min_size` rows, at most `tries` times. A draw in which all of a class falls to clients that are full
    (nothing is left to rescale; seen at tiny beta only) counts as a failed try. With `min_size = 0` shards may
    be empty.

    How often a draw is repeated, for ten classes of 6 000 rows (Fashion-MNIST) and min_size 10, at 0.2 to
    0.8 ms a try: with 100 clients, beta 0.1 took 3 tries on average and 14 at most (300 seeds), beta 0.5 and
    1.0 one. With 200 clients beta 0.1 took 125 on average, 371 at most; 500 clients at beta 0.1, and 100 at
    beta 0.05, rarely or never succeed, and end in the error within a second.

    Args:
        labels: [n] int64 in 0..num_classes-1.

    Raises:
        ScenarioError: No number of clients, a minimum that the rows cannot meet, or `tries` draws that all
            failed.
        DataError: More clients than rows.

    Source: Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022, and its
    code (NIID-Bench), which also has the cap and the minimum.
    """
    count = client_count(clients, len(labels))
    if min_size * count > len(labels):
        raise ScenarioError(
            f"data.partition.min_size: {count} clients of at least {min_size} rows need {min_size * count} rows, "
            f"the training data has {len(labels)}; choose fewer clients or a smaller min_size"
        )
    class_sizes = np.bincount(labels, minlength=num_classes)
    best = 0
    for _ in range(tries):
        counts = _capped_counts(class_sizes, count, beta, rng)
        if counts is None:
            continue
        smallest = int(counts.sum(axis=0).min())
        if smallest >= min_size:
            return deal(labels, counts, rng)
        best = max(best, smallest)
    raise ScenarioError(
        f"data.partition: none of {tries} Dirichlet draws gave each of {count} clients {min_size} rows; in the best "
        f"the smallest client had {best}. Choose a larger beta (now {beta:g}), fewer clients, a smaller min_size, "
        "or more tries"
    )


def dirichlet_plain(
    labels: np.ndarray, num_classes: int, clients: PositiveInt | None, rng: np.random.Generator, alpha: Concentration
) -> Shards:
    """Class by class, Dir(alpha) proportions among all clients: no cap, no minimum, so shards may be empty.

    Args:
        labels: [n] int64 in 0..num_classes-1.

    Raises:
        ScenarioError: No number of clients.
        DataError: More clients than rows.

    Source: Chen et al., "On the Importance and Applicability of Pre-Training for Federated Learning", ICLR 2023,
    where class c is spread by q_c ~ Dir(alpha * 1).
    """
    count = client_count(clients, len(labels))
    class_sizes = np.bincount(labels, minlength=num_classes)
    counts = np.stack([cut(rng.dirichlet(np.full(count, alpha)), int(size)) for size in class_sizes])
    return deal(labels, counts, rng)


def _capped_counts(class_sizes: np.ndarray, clients: int, beta: float, rng: np.random.Generator) -> np.ndarray | None:
    """[classes, clients] rows of each class for each client, or None where a class had nowhere to go."""
    counts = np.zeros((len(class_sizes), clients), np.int64)
    held = np.zeros(clients, np.int64)
    even_share = class_sizes.sum() / clients
    # A class without rows takes no draw: when it comes last, all clients may be full already.
    for label in np.flatnonzero(class_sizes):
        proportions = np.where(held < even_share, rng.dirichlet(np.full(clients, beta)), 0.0)
        if not proportions.sum() > 0:
            return None
        counts[label] = cut(proportions, int(class_sizes[label]))
        held += counts[label]
    return counts
