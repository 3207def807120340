"""What the scheduler runs on: workers whose calls return references, which may be arguments of further calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Ref = Any
"""Stands for a value that a worker has yet to produce."""

LONGEST_CHAIN = 256
"""Calls that may follow one another by reference before the scheduler calls `Backend.detached`.

Ray remembers how every object was made until nothing depends on it any more, and forgets a chain of such calls by
recursion: after some 6 700 calls the scheduler's stack overflows. Detaching costs one round trip to the server and
drains the pipeline once, which 256 calls make too rare to be measured; what is remembered stays below 2 MB.
"""


class Worker(Protocol):
    """A host or the server, wherever it lives."""

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        """Starts a method without waiting for it.

        Args:
            method: Name of the method.
            arguments: Its arguments; references among them become their values before the method runs.
            returns: How many values the method returns, as a tuple if more than one.

        Returns:
            A reference to the result, or a list of references if there is more than one.
        """


class Backend(Protocol):
    """The hosts, the server, and a way to wait for references."""

    @property
    def rounds_ahead(self) -> int:
        """Rounds submitted while one is still under way, so that no host waits for the scheduler."""

    @property
    def hosts(self) -> Sequence[Worker]:
        """The hosts, by number."""

    @property
    def server(self) -> Worker:
        """The server."""

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        """Waits until at least one reference is ready, and returns all that are; none if the time runs out."""

    def get(self, ref: Ref) -> Any:
        """Returns the value of a reference, or raises what the call raised."""

    def detached(self, ref: Ref) -> Ref:
        """Gives a value a new reference that remembers nothing of the calls that made it.

        Waits until the value exists, so wait for the calls behind it first, where the watchdog can see them. The
        value itself does not pass through the caller.

        Args:
            ref: The value's present reference, which may be dropped afterwards.

        Returns:
            A reference that can replace it as an argument.
        """
