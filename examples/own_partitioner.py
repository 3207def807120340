"""Your own partitioner: a function that assigns training samples to clients.

    rayfl data examples/own_partitioner.toml

rayfl passes what the function asks for by parameter name: `labels` ([n] int64 classes), `num_classes`, `targets` (the
labels as stored), `num_samples` (n), `clients` (their number, or None), `rng` (a numpy generator: draw only from it,
and the split follows from the seed) and `natural` (the clients that come with the data, or None). All other parameters
are options of `data.partition`.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field


def long_tail(
    num_samples: int,
    clients: int,
    rng: np.random.Generator,
    ratio: Annotated[float, Field(gt=0, le=1)] = 0.8,
) -> np.ndarray:
    """Gives every client `ratio` times the samples of the one before it.

    Returns:
        [num_samples] integers: the owner of every sample, from 0 to clients - 1. You can also return
        `rayfl.data.Shards`, which may leave samples out.
    """
    weights = ratio ** np.arange(clients)
    ends = np.ceil(np.cumsum(weights) / weights.sum() * num_samples)
    return rng.permutation(np.searchsorted(ends, np.arange(num_samples), side="right").clip(max=clients - 1))
