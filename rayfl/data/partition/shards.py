"""Label-sorted shards: every client has samples of only a few classes."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl.data.dataset import Shards
from rayfl.data.partition.client_count import client_count
from rayfl.errors import DataError


def shards(
    labels: np.ndarray, clients: PositiveInt | None, rng: np.random.Generator, shards_per_client: PositiveInt = 2
) -> Shards:
    """Sorts the samples by label, cuts them into equal pieces, and gives each client random ones.

    If the samples do not divide evenly, pieces differ in size by one sample. No client is empty. Every piece is sure to
    hold a single class only if all classes have the same size and the number of pieces is a multiple of the number of
    classes. The partition is then also FedBABU's, whose "shards per user" is the most classes that a client may hold.

    Args:
        labels: [n] int64.
        clients: Number of clients.
        rng: Random generator.
        shards_per_client: Number of pieces for each client.

    Raises:
        ScenarioError: No number of clients is given.
        DataError: There are fewer samples than pieces.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017, section 3 (100 clients, 2 shards of 300 rows each); Oh et al., "FedBABU", ICLR 2022 (100 clients,
    10, 50 or 100 shards of CIFAR-100).
    """
    count = client_count(clients, len(labels))
    pieces = count * shards_per_client
    if pieces > len(labels):
        raise DataError(
            f"data.partition.shards_per_client: {count} clients with {shards_per_client} shards each need {pieces} "
            f"rows, the training data has {len(labels)}; choose fewer clients or fewer shards per client"
        )
    by_label = np.argsort(labels, kind="stable")
    piece = np.arange(len(labels)) * pieces // len(labels)
    owner_of_piece = rng.permutation(np.arange(pieces) % count)
    owner = np.empty(len(labels), np.int64)
    owner[by_label] = owner_of_piece[piece]
    return Shards.by_owner(owner, count)
