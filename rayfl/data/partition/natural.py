"""The clients that the data itself names."""

from __future__ import annotations

from rayfl.data.dataset import NaturalClients, Shards
from rayfl.errors import DataError


def natural(natural: NaturalClients | None) -> Shards:
    """One client for each that the data names (a writer of FEMNIST), with that client's training rows.

    Clients keep the data's order; one without training rows gets an empty shard.

    Raises:
        DataError: The data names no clients.
    """
    if natural is None:
        raise DataError(
            "data.partition: 'natural' needs data that names its clients, which this does not; "
            "use another, such as 'iid', 'dirichlet' or 'shards'"
        )
    return natural.train
