"""Test samples by client where the data has no clients of its own: of the classes that the client trains on."""

from __future__ import annotations

import numpy as np

from rayfl.data.dataset import Shards


def same_classes(
    train_labels: np.ndarray, train_shards: Shards, test_labels: np.ndarray, rng: np.random.Generator
) -> Shards:
    """The test rows of every class, dealt evenly and at random to the clients that hold training rows of it.

    Shares of a class differ by at most one row; who gets the larger ones is random too. A class that no client
    trains on goes to nobody; a client whose classes have fewer test rows than holders may get none.

    Args:
        train_labels: [n] integers.
        test_labels: [n] integers.

    Source: Oh et al., "FedBABU: Towards Enhanced Representation for Federated Image Classification", ICLR 2022:
    "same classes in train and test".
    """
    clients = len(train_shards)
    owner_of_row = np.repeat(np.arange(clients), train_shards.sizes)
    held = np.unique(np.stack([train_labels[train_shards.rows], owner_of_row]), axis=1)
    rows, owners = [], []
    for label in np.unique(test_labels):
        holders = held[1, held[0] == label]
        if len(holders):
            of_class = rng.permutation(np.flatnonzero(test_labels == label))
            rows.append(of_class)
            owners.append(np.resize(rng.permutation(holders), len(of_class)))
    dealt = np.concatenate(rows) if rows else np.empty(0, np.int64)
    by_client = Shards.by_owner(np.concatenate(owners) if owners else np.empty(0, np.int64), clients)
    return Shards(dealt[by_client.rows], by_client.offsets)
