"""Partitioners: which client owns which training sample.

A partitioner is a function that declares any of the following arguments, and its options under `data.partition`, whose
type hints define the allowed values:

- `labels`: [n] int64, the classes of the training samples: their labels, or the result of `data.labels_by`. Without
  classes, a partitioner that requires them is an error, and one with a default gets None.
- `num_classes`: number of classes in `labels`.
- `targets`: the original labels, of any shape.
- `num_samples`: n.
- `clients`: the number of clients, or None.
- `rng`: a numpy generator, the source of all draws.
- `natural`: the natural clients, or None.

It returns `Shards` that use every sample at most once, or the owner of every sample, [n] integers. The
partitioners of rayfl use every sample once, with the rows of each client in ascending order.
"""

from rayfl.data.partition.dirichlet import (
    dirichlet,
    dirichlet_balanced,
    dirichlet_per_client,
    dirichlet_per_client_unequal,
    dirichlet_plain,
)
from rayfl.data.partition.natural import by_domain, natural
from rayfl.data.partition.shares import iid, shards

__all__ = [
    "by_domain",
    "dirichlet",
    "dirichlet_balanced",
    "dirichlet_per_client",
    "dirichlet_per_client_unequal",
    "dirichlet_plain",
    "iid",
    "natural",
    "shards",
]
