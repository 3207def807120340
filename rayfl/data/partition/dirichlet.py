"""Label skew by Dirichlet distributions: over the clients of each class, or over the classes of each client.

Each class is split over the clients in Dirichlet proportions, also with clients of equal size; or each client draws its
samples from its own Dirichlet mixture of classes.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from rayfl.data.dataset import Shards
from rayfl.data.partition.shares import client_count, cut, deal, equal_sizes
from rayfl.errors import ScenarioError

Concentration = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Parameter of a symmetric Dirichlet distribution; smaller values give more skew."""


def dirichlet(
    labels: np.ndarray,
    num_classes: int,
    clients: PositiveInt | None,
    rng: np.random.Generator,
    beta: Concentration,
    min_size: NonNegativeInt = 10,
    tries: PositiveInt = 1000,
) -> Shards:
    """Splits every class in Dir(beta) proportions over the clients that hold less than an even share so far.

    For class k, p ~ Dir(beta * 1); p_j is set to 0 for every client j that already holds at least n / N samples; p is
    rescaled, and the class is cut at floor(cumsum(p) * n_k). The whole draw is repeated until every client holds
    `min_size` samples, at most `tries` times. A draw in which a class falls entirely to clients that are already full,
    so that nothing is left to rescale (seen at tiny beta only), counts as a failed try. With `min_size = 0`, shards may
    be empty.

    Measured for ten classes of 6 000 samples (Fashion-MNIST) and min_size = 10, at 0.2 to 0.8 ms a try: with 100
    clients, beta = 0.1 took 3 tries on average and at most 14 (300 seeds), beta = 0.5 and 1.0 a single one. With 200
    clients, beta = 0.1 took 125 on average and at most 371. 500 clients with beta = 0.1, and 100 with beta = 0.05,
    rarely or never succeed, and end in the error within a second.

    Args:
        labels: [n] int64 in 0..num_classes-1.
        num_classes: Number of classes.
        clients: Number of clients.
        rng: Random generator.
        beta: Concentration of the Dirichlet distribution.
        min_size: Minimum number of samples per client.
        tries: Maximum number of draws.

    Raises:
        ScenarioError: No number of clients is given, there are too few samples for the minimum, or all `tries` draws
            failed.
        DataError: There are more clients than samples.

    Source: Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022, and its code
    (NIID-Bench), which also has the cap and the minimum.
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
    """Splits every class over all clients in Dir(alpha) proportions, without a cap or a minimum.

    Shards may be empty.

    Args:
        labels: [n] int64 in 0..num_classes-1.
        num_classes: Number of classes.
        clients: Number of clients.
        rng: Random generator.
        alpha: Concentration of the Dirichlet distribution.

    Raises:
        ScenarioError: No number of clients is given.
        DataError: There are more clients than samples.

    Source: Chen et al., "On the Importance and Applicability of Pre-Training for Federated Learning", ICLR 2023,
    where class c is split by q_c ~ Dir(alpha * 1).
    """
    count = client_count(clients, len(labels))
    class_sizes = np.bincount(labels, minlength=num_classes)
    counts = np.stack([cut(rng.dirichlet(np.full(count, alpha)), int(size)) for size in class_sizes])
    return deal(labels, counts, rng)


def _capped_counts(class_sizes: np.ndarray, clients: int, beta: float, rng: np.random.Generator) -> np.ndarray | None:
    """[classes, clients] samples of each class for each client, or None if a class fell only to full clients."""
    counts = np.zeros((len(class_sizes), clients), np.int64)
    held = np.zeros(clients, np.int64)
    even_share = class_sizes.sum() / clients
    # Empty classes are skipped: by the last one, all clients may already be full.
    for label in np.flatnonzero(class_sizes):
        proportions = np.where(held < even_share, rng.dirichlet(np.full(clients, beta)), 0.0)
        if not proportions.sum() > 0:
            return None
        counts[label] = cut(proportions, int(class_sizes[label]))
        held += counts[label]
    return counts


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


def dirichlet_per_client(
    labels: np.ndarray,
    num_classes: int,
    clients: PositiveInt | None,
    rng: np.random.Generator,
    alpha: Concentration,
    sigma: Annotated[float, Field(ge=0, le=100)] = 0.0,
) -> Shards:
    """Fills clients of given sizes sample by sample, with classes from each client's mixture pi_i ~ Dir(alpha * 1).

    The original procedure repeats three steps until all clients are full: pick a client that is not, uniformly at
    random; draw classes from its mixture until one still has samples; give the client one of these. This implementation
    draws from the same distribution in one pass. Clients are picked in the order in which Poisson clocks of equal rate
    tick, each stopped when its client is full; redrawing until a class has samples left is a single draw from the
    mixture restricted to these classes; and since the samples of a class are dealt at random, only their numbers are
    drawn. The original never terminates if a client's mixture gives no weight to any class that is left; here, such a
    client draws in proportion to the samples left in each class. Clients picked late may therefore deviate from their
    mixtures. 50 000 samples and 100 clients take 0.04 s.

    Args:
        labels: [n] int64 in 0..num_classes-1.
        num_classes: Number of classes.
        clients: Number of clients.
        rng: Random generator.
        alpha: Concentration of the Dirichlet distribution.
        sigma: 0 gives equal sizes; if the samples do not divide evenly, random clients get one more (the authors' code
            drops the remainder). Otherwise sizes are proportional to draws from LogNormal(0, sigma), rounded down, and
            client 0 gets the remainder, as in that code. With a large sigma, shards may be empty.

    Raises:
        ScenarioError: No number of clients is given.
        DataError: There are more clients than samples.

    Source: the code of Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, and of FedBug
    (sigma = 0); the same as the equal clients of Jhunjhunwala et al., "FedExP", ICLR 2023.
    """
    count, rows = client_count(clients, len(labels)), len(labels)
    sizes = equal_sizes(rows, count, rng) if sigma == 0 else _log_normal_sizes(rows, count, sigma, rng)
    mixtures = rng.dirichlet(np.full(num_classes, alpha), count)
    return deal(labels, _filled(sizes, mixtures, np.bincount(labels, minlength=num_classes), rng), rng)


def dirichlet_per_client_unequal(
    labels: np.ndarray, num_classes: int, clients: PositiveInt | None, rng: np.random.Generator, alpha: Concentration
) -> Shards:
    """Draws a mixture pi_i ~ Dir(alpha * 1) for each client, and splits class k in proportion to all clients' pi_ik.

    Sizes differ, and shards may be empty.

    Args:
        labels: [n] int64 in 0..num_classes-1.
        num_classes: Number of classes.
        clients: Number of clients.
        rng: Random generator.
        alpha: Concentration of the Dirichlet distribution.

    Raises:
        ScenarioError: No number of clients is given.
        DataError: There are more clients than samples.

    Source: the code of Jhunjhunwala et al., "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023,
    with its option of unequal clients; for its equal clients, see `dirichlet_per_client`.
    """
    count = client_count(clients, len(labels))
    mixtures = rng.dirichlet(np.full(num_classes, alpha), count)
    # A class to which no mixture gives any weight (seen at tiny alpha only) is split evenly.
    mixtures[:, mixtures.sum(axis=0) == 0] = 1
    class_sizes = np.bincount(labels, minlength=num_classes)
    return deal(labels, np.stack([cut(mixtures[:, k], int(size)) for k, size in enumerate(class_sizes)]), rng)


def _log_normal_sizes(rows: int, clients: int, sigma: float, rng: np.random.Generator) -> np.ndarray:
    exponents = sigma * rng.standard_normal(clients)
    weights = np.exp(exponents - exponents.max())
    sizes: np.ndarray = np.floor(weights / weights.sum() * rows).astype(np.int64)
    sizes[0] += rows - sizes.sum()
    return sizes


def _filled(sizes: np.ndarray, mixtures: np.ndarray, class_sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[classes, clients] int64: how many samples of each class the clients hold once all are full."""
    remaining = class_sizes.tolist()
    counts = np.zeros((len(remaining), len(sizes)), np.int64)
    cumulated = mixtures.cumsum(axis=1).tolist()
    turns = _turns(sizes, rng)
    for client, draw in zip(turns.tolist(), rng.random(len(turns)).tolist(), strict=True):
        label = bisect_right(cumulated[client], draw * cumulated[client][-1])
        if not remaining[label]:
            cumulated[client] = _cumulated_over(mixtures[client], remaining)
            label = bisect_right(cumulated[client], rng.random() * cumulated[client][-1])
        remaining[label] -= 1
        counts[label, client] += 1
    return counts


def _turns(sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[n] int64: the clients in the order in which they are picked, client i `sizes[i]` times."""
    client = np.repeat(np.arange(len(sizes)), sizes)
    summed = np.concatenate([[0.0], np.cumsum(rng.standard_exponential(len(client)))])
    before = np.repeat(summed[np.cumsum(sizes) - sizes], sizes)
    turns: np.ndarray = client[np.argsort(summed[1:] - before)]
    return turns


def _cumulated_over(mixture: np.ndarray, remaining: list[int]) -> list[float]:
    """Cumulated mixture over the classes with samples left, in proportion to these if it gives them no weight."""
    rows = np.array(remaining)
    weights = np.where(rows > 0, mixture, 0.0)
    if not weights.sum() > 0:
        weights = rows.astype(float)
    cumulated: list[float] = np.cumsum(weights / weights.sum()).tolist()
    return cumulated
