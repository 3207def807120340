"""Partitioners: which client owns which training sample.

A partitioner declares those of the arguments `labels` ([n] int64), `num_classes`, `clients` (their number), `rng` and
`natural` (the data's own clients) that it needs, and its options under `data.partition`, whose type hints state the
allowed values. It returns `Shards` that use every sample once, with each client's rows in ascending order.
"""

from rayfl.data.partition.balanced import dirichlet_balanced
from rayfl.data.partition.by_domain import by_domain
from rayfl.data.partition.dirichlet import dirichlet, dirichlet_plain
from rayfl.data.partition.iid import iid
from rayfl.data.partition.natural import natural
from rayfl.data.partition.per_client import dirichlet_per_client, dirichlet_per_client_unequal
from rayfl.data.partition.shards import shards

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
