"""Shares of clients: independent and identically distributed (IID), label-sorted shards, and dealt by class.

How many clients share the samples, how many samples each gets, and which, given how many it gets of each class.
"""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl.data.dataset import Shards
from rayfl.errors import DataError, ScenarioError


def client_count(clients: int | None, rows: int) -> int:
    """Returns `clients` after checking that it is a number, and at most the number of samples.

    Args:
        clients: Number of clients; None if the scenario gives none.
        rows: Number of training samples.

    Raises:
        ScenarioError: No number is given.
        DataError: There are more clients than samples.
    """
    if clients is None:
        raise ScenarioError("data.clients: needs a number")
    if clients > rows:
        raise DataError(f"data.clients: {clients} clients cannot share {rows} training rows; choose at most {rows}")
    return clients


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


def iid(
    num_samples: int,
    clients: PositiveInt | None,
    rng: np.random.Generator,
    labels: np.ndarray | None = None,
    per_class: bool = False,
) -> Shards:
    """Splits the samples at random into shards that differ in size by at most one sample; none is empty.

    Args:
        num_samples: Number of samples.
        clients: Number of clients.
        rng: Random generator.
        labels: [n] int64, for `per_class`.
        per_class: Split every class evenly too: clients differ by at most one sample in each class, and not at all if
            the class sizes are multiples of the number of clients. The code of FedDyn and FedBug splits CIFAR-100
            like this (500 / N images of every class for each of N clients).

    Raises:
        ScenarioError: No number of clients is given.
        DataError: There are more clients than samples.
    """
    count = client_count(clients, num_samples)
    turns = np.arange(num_samples) % count
    if not per_class or labels is None:
        return Shards.by_owner(rng.permutation(turns), count)
    owner = np.empty(num_samples, np.int64)
    owner[shuffled_by_label(labels, rng)] = rng.permutation(count)[turns]
    return Shards.by_owner(owner, count)


def shards(
    labels: np.ndarray, clients: PositiveInt | None, rng: np.random.Generator, shards_per_client: PositiveInt = 2
) -> Shards:
    """Sorts the samples by label, cuts them into equal pieces, and gives each client random ones.

    If the samples do not divide evenly, pieces differ in size by one sample. No client is empty. Every piece is sure to
    hold a single class only if all classes have the same size and the number of pieces is a multiple of the number of
    classes. The partition is then also FedBABU's, whose "shards per user" is the most classes that a client may hold.

    Args:
        labels: [n] int64.
        clients: Number of clients.
        rng: Random generator.
        shards_per_client: Number of pieces for each client.

    Raises:
        ScenarioError: No number of clients is given.
        DataError: There are fewer samples than pieces.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017, section 3 (100 clients, 2 shards of 300 rows each); Oh et al., "FedBABU", ICLR 2022 (100 clients,
    10, 50 or 100 shards of CIFAR-100).
    """
    count = client_count(clients, len(labels))
    pieces = count * shards_per_client
    if pieces > len(labels):
        raise DataError(
            f"data.partition.shards_per_client: {count} clients with {shards_per_client} shards each need {pieces} "
            f"rows, the training data has {len(labels)}; choose fewer clients or fewer shards per client"
        )
    by_label = np.argsort(labels, kind="stable")
    piece = np.arange(len(labels)) * pieces // len(labels)
    owner_of_piece = rng.permutation(np.arange(pieces) % count)
    owner = np.empty(len(labels), np.int64)
    owner[by_label] = owner_of_piece[piece]
    return Shards.by_owner(owner, count)
