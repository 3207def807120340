"""Samples that no client trains on: cut from each client's training samples, or kept by the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rayfl.data.dataset import NaturalClients, Samples, Shards
from rayfl.errors import DataError
from rayfl.streams import stream

VALIDATION, CLIENT_TEST = "validation", "client_test"

BANK = "bank"
"""The name of the training samples that metrics of features read beside those that are held out."""


@dataclass(frozen=True)
class HeldOut:
    """A set of samples that no client trains on.

    Attributes:
        samples: All of them; client after client where they belong to clients.
        shards: The rows of `samples` that belong to each client; None where they belong to nobody.
    """

    samples: Samples
    shards: Shards | None = None


@dataclass(frozen=True)
class Cut:
    """A client's training samples in three parts, as places in its shard, each in ascending order."""

    train: np.ndarray
    validation: np.ndarray
    client_test: np.ndarray


def cut_clients(
    shards: Shards, seed: int, validation: float | None, client_test: float | None
) -> tuple[Shards, dict[str, Shards]]:
    """Holds out a part of each client's training samples.

    A client's parts are drawn from a stream of its own, so they do not depend on the other clients, nor the validation
    samples on the share of test samples and conversely. A part is the rounded share of the client's samples, at least
    one.

    Args:
        shards: The clients' training samples.
        seed: The data's seed.
        validation: The share of each client's samples that is held out for validation, if any.
        client_test: Likewise for testing.

    Returns:
        What is left to train on, and the shards that were held out, "validation" and "client_test", of the same rows.

    Raises:
        DataError: A client would have nothing left to train on; names it.
    """
    cuts = [_cut(client, len(shards[client]), seed, validation, client_test) for client in range(len(shards))]

    def part(places: Callable[[Cut], np.ndarray]) -> Shards:
        chosen = [places(cut) for cut in cuts]
        offsets = np.cumsum([0, *map(len, chosen)], dtype=np.int64)
        return Shards(np.concatenate([shards[c][p] for c, p in enumerate(chosen)]), offsets)

    held: dict[str, Shards] = {}
    if validation is not None:
        held[VALIDATION] = part(lambda cut: cut.validation)
    if client_test is not None:
        held[CLIENT_TEST] = part(lambda cut: cut.client_test)
    return part(lambda cut: cut.train), held


def draw_for_server(
    train: Samples, natural: NaturalClients | None, seed: int, share: float
) -> tuple[Samples, Samples, NaturalClients | None]:
    """Draws the samples that the server alone holds, uniformly from all training samples.

    They are drawn before the partition. Of data with clients of its own, only samples of these clients are drawn, and
    each gives up what was drawn of its samples: about the share, not exactly.

    Args:
        train: All training samples.
        natural: The data's own clients, if it has any.
        seed: The data's seed.
        share: Of the training samples, rounded to a number of at least one.

    Returns:
        The samples that are left, the server's, and the data's own clients without the server's samples.

    Raises:
        DataError: Nothing would be left.
    """
    owned = np.sort(natural.train.rows) if natural else np.arange(len(train))
    number = max(1, round(share * len(owned)))
    if number >= len(owned):
        raise DataError(f"data.server_share: {share:g} of {len(owned)} training samples leaves none for the clients")
    drawn = np.sort(stream(seed, "hold out server").choice(owned, number, replace=False))
    left = np.setdiff1d(np.arange(len(train)), drawn, assume_unique=True)
    if natural:
        natural = NaturalClients(natural.names, _without(natural.train, drawn, left), natural.test)
    return train.take(left), train.take(drawn), natural


def _without(shards: Shards, drawn: np.ndarray, left: np.ndarray) -> Shards:
    """The shards without the rows that were drawn, as rows of what is left."""
    stays = ~np.isin(shards.rows, drawn)
    offsets = np.concatenate([[0], np.cumsum(stays)])[shards.offsets]
    return Shards(np.searchsorted(left, shards.rows[stays]), offsets)


def _cut(client: int, size: int, seed: int, validation: float | None, client_test: float | None) -> Cut:
    wanted = {"data.validation_share": validation, "data.test_share": client_test}
    numbers = [0 if share is None else max(1, round(share * size)) for share in wanted.values()]
    if sum(numbers) >= size:
        keys = " and ".join(key for key, share in wanted.items() if share is not None)
        samples = f"{size} training sample" + ("s" if size != 1 else "")
        raise DataError(
            f"{keys}: client {client} has {samples}, too few to hold out {sum(numbers)} and keep one to train on; "
            "choose a smaller share, fewer clients, or a partition with a minimum size"
        )
    # validation from one end and test from the other, so that neither depends on the other's share
    order = stream(seed, "hold out", client).permutation(size)
    parts = np.split(order, [numbers[0], size - numbers[1]])
    return Cut(train=np.sort(parts[1]), validation=np.sort(parts[0]), client_test=np.sort(parts[2]))
