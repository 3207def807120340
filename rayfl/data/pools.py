"""Pools of samples that belong to no single client; their numbers follow those of the clients."""

from __future__ import annotations

from typing import Literal

Pool = Literal["clients", "server", "nobody"]
"""`clients`: all training samples of all clients; `server`: samples that only the server holds; `nobody`: none."""

POOLS: tuple[Pool, ...] = ("clients", "server", "nobody")


def pool_number(pool: Pool, num_clients: int) -> int:
    """The client number that a pool uses for training and random streams, as if it were one more client."""
    return num_clients + POOLS.index(pool)
