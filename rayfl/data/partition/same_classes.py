"""Test samples by client for data without natural clients: each client is tested on its training classes."""

from __future__ import annotations

import numpy as np

from rayfl.data.dataset import Shards


def same_classes(
    train_labels: np.ndarray, train_shards: Shards, test_labels: np.ndarray, rng: np.random.Generator
) -> Shards:
    """Deals the test samples of every class evenly and at random to the clients that train on this class.

    The clients' shares of a class differ by at most one sample; which clients get the larger shares is random too. The
    test samples of a class that no client trains on are not dealt. A client may get none if all of its classes
    have fewer test samples than clients that train on them.

    Args:
        train_labels: [n] integers.
        train_shards: The clients' training samples.
        test_labels: [m] integers.
        rng: Random generator.

    Returns:
        The clients' test samples: rows of `test_labels`.

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
