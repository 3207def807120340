"""The clients that the data itself names."""

from __future__ import annotations

from rayfl.data.dataset import NaturalClients, Shards
from rayfl.errors import DataError


def natural(natural: NaturalClients | None) -> Shards:
    """Makes every client that the data names (a FEMNIST writer, for example) a client with its training samples.

    Clients keep the data's order; a client without training samples gets an empty shard.

    Args:
        natural: The data's own clients; None if it names none.

    Raises:
        DataError: The data names no clients.
    """
    if natural is None:
        raise DataError(
            "data.partition: 'natural' needs data that names its clients, which this does not; "
            "use another, such as 'iid', 'dirichlet' or 'shards'"
        )
    return natural.train
