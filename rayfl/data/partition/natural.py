"""The clients that the data itself defines."""

from __future__ import annotations

from rayfl.data.dataset import NaturalClients, Shards
from rayfl.errors import DataError


def natural(natural: NaturalClients | None) -> Shards:
    """Uses the clients of the data (such as FEMNIST writers) with their training samples.

    Clients keep the order of the data; a client without training samples gets an empty shard.

    Args:
        natural: The natural clients; None if there are none.

    Raises:
        DataError: The data has no natural clients.
    """
    if natural is None:
        raise DataError(
            "data.partition: 'natural' needs data with natural clients, but this data has none; "
            "use another, such as 'iid', 'dirichlet' or 'shards'"
        )
    return natural.train
