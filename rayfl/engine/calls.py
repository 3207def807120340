"""Calls under way on hosts and server, waited for under a watchdog."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from rayfl.engine.backend import Backend, Ref
from rayfl.errors import ResourceError
from rayfl.planning.events import Event, Waiting


@dataclass(frozen=True)
class Call:
    """A reference that is awaited, and what a person would call it."""

    ref: Ref
    what: str


def wait_for(
    backend: Backend, calls: Sequence[Call], watchdog_s: float, phase: str, round: int
) -> Generator[Event, None, list[Any]]:
    """Waits for some calls; yields a `Waiting` event whenever nothing came back for `watchdog_s`.

    Returns:
        Their values, in order.

    Raises:
        RayflError: What the first call that failed raised, whatever else is under way.
    """
    values: dict[Ref, Any] = {}
    pending = {call.ref: call.what for call in calls}
    since = time.monotonic()
    while pending:
        done = backend.wait(list(pending), watchdog_s)
        for ref in done:
            try:
                values[ref] = backend.get(ref)
            except ResourceError as error:
                error.args = (f"while waiting for {pending[ref]}, phase '{phase}', round {round}: {error}",)
                raise
            del pending[ref]
            since = time.monotonic()
        if not done:
            yield Waiting(phase, round, time.monotonic() - since, tuple(pending.values()))
    return [values[call.ref] for call in calls]


def client_names(clients: Sequence[int]) -> str:
    """Clients for a person to read, the first eight by number."""
    shown = ", ".join(str(client) for client in clients[:8])
    return f"clients {shown}" + (f" and {len(clients) - 8} more" if len(clients) > 8 else "")
