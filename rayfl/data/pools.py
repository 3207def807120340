"""Samples that belong to nobody in particular, under numbers that follow those of the clients."""

from __future__ import annotations

from typing import Literal

Pool = Literal["clients", "server", "nobody"]
"""`clients`: all training samples of all clients; `server`: what only the server holds; `nobody`: no samples."""

POOLS: tuple[Pool, ...] = ("clients", "server", "nobody")


def pool_number(pool: Pool, num_clients: int) -> int:
    """The number under which a pool is trained on and draws its random streams, as if it were one more client."""
    return num_clients + POOLS.index(pool)
