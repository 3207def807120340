"""What the scheduler runs on: workers whose calls return references, which may be arguments of further calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Ref = Any
"""Stands for a value that may not be there yet, on whichever worker will produce it."""


class Worker(Protocol):
    """A host or the server, wherever it lives."""

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        """Starts a method; returns a reference, or a list of them where it returns a tuple of `returns` values.

        References among the arguments become their values before the method runs.
        """


class Backend(Protocol):
    """The hosts, the server, and a way to wait for references."""

    @property
    def hosts(self) -> Sequence[Worker]: ...

    @property
    def server(self) -> Worker: ...

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        """Those that are there, as soon as one is; none when the time is over."""

    def get(self, ref: Ref) -> Any:
        """The value. Raises what the call raised."""
