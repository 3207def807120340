"""Independent and identically distributed (IID) clients."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl.data.dataset import Shards
from rayfl.data.partition.client_count import client_count
from rayfl.data.partition.dealing import shuffled_by_label


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
