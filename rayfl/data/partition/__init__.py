"""Partitioners: which client owns which training sample.

A partitioner is a function that declares those of these arguments that it needs, and its options under
`data.partition`, whose type hints state the allowed values:

- `labels`: [n] int64, the classes of the training samples: their labels, or what `data.labels_by` makes of them. Where
  there are none, a partitioner that requires them is refused, and one with a default for them gets None.
- `num_classes`: how many classes `labels` counts.
- `targets`: the labels as they are, of whatever shape.
- `num_samples`: n.
- `clients`: the number of clients, or None.
- `rng`: where all draws come from, a numpy generator.
- `natural`: the data's own clients, or None.

It returns `Shards` that use every sample at most once, or the owner of every sample, [n] integers. rayfl's own use
every sample once, with each client's rows in ascending order.
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
