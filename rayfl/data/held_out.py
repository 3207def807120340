"""Samples that no single client trains on: held out from the clients, or held by the server.

Pools are such samples used for training; their numbers follow those of the clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rayfl.data.dataset import AT_ONCE, NaturalClients, Samples, Shards
from rayfl.data.subsets import kept
from rayfl.errors import DataError
from rayfl.streams import stream, streams

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
    sizes = shards.sizes
    numbers = _rounded(validation, sizes), _rounded(client_test, sizes)
    left = sizes - sum(numbers)
    if left.min() < 1:
        client = int(np.argmax(left < 1))
        wanted = {"data.validation_share": validation, "data.test_share": client_test}
        keys = " and ".join(key for key, share in wanted.items() if share is not None)
        samples = f"{sizes[client]} training sample" + ("s" if sizes[client] != 1 else "")
        raise DataError(
            f"{keys}: client {client} has {samples}, too few to hold out {sizes[client] - left[client]} and keep one "
            "to train on; choose a smaller share, fewer clients, or a partition with a minimum size"
        )
    parts = np.empty(len(shards.rows), np.int8)
    for first in range(0, len(shards), AT_ONCE):
        block = slice(first, min(first + AT_ONCE, len(shards)))
        offsets = shards.offsets[block.start : block.stop + 1]
        places = np.arange(offsets[0], offsets[-1])
        ends = (offsets - offsets[0]).tolist()
        rngs = streams(seed, "hold out", range(block.start, block.stop))
        for rng, start, end in zip(rngs, ends[:-1], ends[1:], strict=True):
            rng.shuffle(places[start:end])
        # validation from one end and test from the other, so that neither depends on the other's share
        last_of_validation, first_of_test = offsets[:-1] + numbers[0][block], offsets[1:] - numbers[1][block]
        place, repeats = np.arange(offsets[0], offsets[-1]), np.diff(offsets)
        parts[places] = (place < np.repeat(last_of_validation, repeats)) + 2 * (
            place >= np.repeat(first_of_test, repeats)
        )

    def part(number: int, sizes: np.ndarray) -> Shards:
        return Shards(shards.rows[parts == number], np.concatenate([[0], np.cumsum(sizes)]))

    held: dict[str, Shards] = {}
    if validation is not None:
        held[VALIDATION] = part(1, numbers[0])
    if client_test is not None:
        held[CLIENT_TEST] = part(2, numbers[1])
    return part(0, left), held


def _rounded(share: float | None, sizes: np.ndarray) -> np.ndarray:
    return np.zeros_like(sizes) if share is None else np.rint(share * sizes).clip(1).astype(np.int64)


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
        natural = NaturalClients(natural.names, kept(natural.train, remaining), natural.test)
    return train.select(remaining), train.select(drawn), natural


Pool = Literal["clients", "server", "nobody"]
"""`clients`: all training samples of all clients; `server`: samples that only the server holds; `nobody`: none."""

POOLS: tuple[Pool, ...] = ("clients", "server", "nobody")


def pool_number(pool: Pool, num_clients: int) -> int:
    """The client number that a pool uses for training and random streams, as if it were one more client."""
    return num_clients + POOLS.index(pool)
