"""Samples that no single client trains on: held out from the clients, or held by the server.

Pools are such samples used for training; their numbers follow those of the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rayfl.data.dataset import NaturalClients, Samples, Shards
from rayfl.errors import DataError
from rayfl.streams import stream

VALIDATION, CLIENT_TEST = "validation", "client_test"

BANK = "bank"
"""Name of the training samples that feature metrics read in addition to held-out samples."""


@dataclass(frozen=True)
class HeldOut:
    """A set of samples that no client trains on.

    Attributes:
        samples: All of them, ordered by client if they belong to clients.
        shards: The rows of `samples` that belong to each client; None if they belong to no client.
    """

    samples: Samples
    shards: Shards | None = None


@dataclass(frozen=True)
class Cut:
    """The training samples of a client in three parts, as positions in its shard, each ascending."""

    train: np.ndarray
    validation: np.ndarray
    client_test: np.ndarray


def cut_clients(
    shards: Shards, seed: int, validation: float | None, client_test: float | None
) -> tuple[Shards, dict[str, Shards]]:
    """Holds out a part of the training samples of each client.

    Each client has its own random stream, so its parts do not depend on other clients. Validation samples do not depend
    on the share of test samples, nor the reverse. A part is the rounded share of the samples, at least one.

    Args:
        shards: The clients' training samples.
        seed: The data's seed.
        validation: Share of each client's samples held out for validation, if any.
        client_test: Likewise for testing.

    Returns:
        The remaining training shards, and the held-out shards "validation" and "client_test" of the same samples.

    Raises:
        DataError: A client would have no training samples left; names it.
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
    """Draws the samples that only the server holds, uniformly from all training samples.

    They are drawn before the partition. If the data has natural clients, only their samples are drawn, so each client
    loses approximately the share, not exactly.

    Args:
        train: All training samples.
        natural: The natural clients, if any.
        seed: The data's seed.
        share: Share of the training samples, rounded to at least one sample.

    Returns:
        The remaining samples, the samples of the server, and the natural clients without the samples of the server.

    Raises:
        DataError: No samples would be left for the clients.
    """
    owned = np.sort(natural.train.rows) if natural else np.arange(len(train))
    number = max(1, round(share * len(owned)))
    if number >= len(owned):
        raise DataError(f"data.server_share: {share:g} of {len(owned)} training samples leaves none for the clients")
    drawn = np.sort(stream(seed, "hold out server").choice(owned, number, replace=False))
    remaining = np.setdiff1d(np.arange(len(train)), drawn, assume_unique=True)
    if natural:
        natural = NaturalClients(natural.names, _without(natural.train, drawn, remaining), natural.test)
    return train.take(remaining), train.take(drawn), natural


def _without(shards: Shards, drawn: np.ndarray, remaining: np.ndarray) -> Shards:
    """The shards without the drawn rows, renumbered as rows of the remaining samples."""
    stays = ~np.isin(shards.rows, drawn)
    offsets = np.concatenate([[0], np.cumsum(stays)])[shards.offsets]
    return Shards(np.searchsorted(remaining, shards.rows[stays]), offsets)


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


Pool = Literal["clients", "server", "nobody"]
"""`clients`: all training samples of all clients; `server`: samples that only the server holds; `nobody`: none."""

POOLS: tuple[Pool, ...] = ("clients", "server", "nobody")


def pool_number(pool: Pool, num_clients: int) -> int:
    """The client number that a pool uses for training and random streams, as if it were one more client."""
    return num_clients + POOLS.index(pool)
