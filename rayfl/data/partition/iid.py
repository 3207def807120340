"""Independent and identically distributed clients."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl.data.dataset import Shards
from rayfl.data.partition.client_count import client_count
from rayfl.data.partition.dealing import shuffled_by_label


def iid(labels: np.ndarray, clients: PositiveInt | None, rng: np.random.Generator, per_class: bool = False) -> Shards:
    """A random partition whose shards differ in size by at most one row; none is empty.

    Args:
        per_class: Every class is spread evenly too: clients differ by at most one row in each class, and are exactly
            alike where the classes' sizes are multiples of the number of clients, as the code of FedDyn and FedBug
            splits CIFAR-100 (500 / N images of every class for each of N clients).
        labels: [n] int64.

    Raises:
        ScenarioError: No number of clients.
        DataError: More clients than rows.
    """
    count = client_count(clients, len(labels))
    turns = np.arange(len(labels)) % count
    if not per_class:
        return Shards.by_owner(rng.permutation(turns), count)
    owner = np.empty(len(labels), np.int64)
    owner[shuffled_by_label(labels, rng)] = rng.permutation(count)[turns]
    return Shards.by_owner(owner, count)
