"""The clients that the data itself defines, and feature skew: clients whose samples come from a single domain."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl.data.dataset import NaturalClients, Shards
from rayfl.errors import DataError, ScenarioError


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


def by_domain(natural: NaturalClients | None, clients: PositiveInt | None, rng: np.random.Generator) -> Shards:
    """Splits every domain evenly and at random over the same number of clients, so that each client has one domain.

    Clients are numbered by domain, in the order of the data; within a domain, sizes differ by at most one sample.

    Args:
        natural: The domains (cities, drawing styles), stored in place of natural clients.
        clients: Number of clients, a multiple of the number of domains.
        rng: Random generator.

    Raises:
        ScenarioError: No number of clients is given, or it is not a multiple of the number of domains.
        DataError: The data names no domains, or a domain has fewer samples than clients.
    """
    if natural is None:
        raise DataError("data.partition: 'by_domain' needs data with domains, but this data has none")
    domains = len(natural.names)
    if clients is None or clients % domains:
        problem = (
            "needs a number"
            if clients is None
            else f"{clients} clients cannot be divided equally among {domains} domains"
        )
        raise ScenarioError(f"data.clients: {problem}; choose a multiple of {domains} for 'by_domain'")
    each = clients // domains
    smallest = int(natural.train.sizes.argmin())
    if natural.train.sizes[smallest] < each:
        raise DataError(
            f"data.clients: domain '{natural.names[smallest]}' has {natural.train.sizes[smallest]} training rows "
            f"for its {each} clients; choose at most {domains * natural.train.sizes[smallest]} clients"
        )
    parts = [part for domain in range(domains) for part in np.array_split(rng.permutation(natural.train[domain]), each)]
    offsets = np.cumsum([0, *map(len, parts)])
    return Shards(np.concatenate([np.sort(part) for part in parts]), offsets)
