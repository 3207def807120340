"""Calls under way on hosts and server, and what a person would call them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rayfl.engine.backend import Ref


@dataclass(frozen=True)
class Call:
    """A reference that is awaited, and what a person would call it."""

    ref: Ref
    what: str


def client_names(clients: Sequence[int]) -> str:
    """Clients for a person to read, the first eight by number."""
    shown = ", ".join(str(client) for client in clients[:8])
    return f"clients {shown}" + (f" and {len(clients) - 8} more" if len(clients) > 8 else "")
