"""Calls under way on hosts and server, and what a person would call them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rayfl.engine.backend import Ref


@dataclass(frozen=True)
class Call:
    """A reference that is awaited.

    Attributes:
        ref: Of its value.
        what: What a person would call it.
        host: The number of the host that computes it; None for the server, and for what several hosts do.
    """

    ref: Ref
    what: str
    host: int | None = None


def client_names(clients: Sequence[int]) -> str:
    """Clients for a person to read, the first eight by number."""
    shown = ", ".join(str(client) for client in clients[:8])
    return f"clients {shown}" + (f" and {len(clients) - 8} more" if len(clients) > 8 else "")
