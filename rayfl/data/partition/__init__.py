"""Partitioners: who owns which row of the training data.

Each takes what it needs of `labels` ([n] int64), `num_classes`, `clients` (how many), `rng` and `natural` (the
data's own clients), and its options under `data.partition`, whose type hints say what is allowed; it returns
`Shards` in which every row is used once and a client's rows ascend.
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
