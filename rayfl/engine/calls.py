"""Calls under way on hosts and server, with a description of each for messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rayfl.engine.backend import Ref


@dataclass(frozen=True)
class Call:
    """A call whose result the scheduler waits for.

    Attributes:
        ref: Reference to the result.
        what: Description for messages, such as "worker 0: clients 3, 7".
        host: Number of the worker process that computes it; None for the server, or if several take part.
    """

    ref: Ref
    what: str
    host: int | None = None


def client_names(clients: Sequence[int]) -> str:
    """Names clients in messages; only the first eight are listed."""
    shown = ", ".join(str(client) for client in clients[:8])
    return f"clients {shown}" + (f" and {len(clients) - 8} more" if len(clients) > 8 else "")
