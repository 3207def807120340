"""What a host asks of an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate

T = TypeVar("T")


class Executor(Protocol):
    """Carries out the requests of client updates; which one does so never shows in an algorithm."""

    def run(
        self, clients: Iterable[ClientContext], update: Callable[[ClientContext], ClientUpdate[T]]
    ) -> Iterator[tuple[ClientContext, T]]:
        """Runs an update of every client.

        Args:
            clients: In the order in which the scenario groups them; an executor may train several together.
            update: Begins a client's update.

        Yields:
            Each client with what its update returned, in the order given.
        """
