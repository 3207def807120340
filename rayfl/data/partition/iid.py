"""Independent and identically distributed clients."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl.data.dataset import Shards
from rayfl.data.partition.client_count import client_count


def iid(labels: np.ndarray, clients: PositiveInt | None, rng: np.random.Generator) -> Shards:
    """A random partition whose shards differ in size by at most one row; none is empty.

    labels: [n] int64.

    Raises:
        ScenarioError: no number of clients.
        DataError: more clients than rows.
    """
    count = client_count(clients, len(labels))
    return Shards.by_owner(rng.permutation(np.arange(len(labels)) % count), count)
