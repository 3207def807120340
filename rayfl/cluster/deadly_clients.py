"""Finds clients that kill their host again and again; the server counts, since it outlives the hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

SEEN = 2
"""Deaths that can be attributed to a client's update. The very first cannot: hosts announce the clients that they are
about to train only after a restart or a recovery."""


class DeadlyClients:
    """Counts deaths of hosts by the clients that they were training."""

    def __init__(self) -> None:
        self._at: dict[int, Sequence[int]] = {}
        self._deaths: Counter[int] = Counter()

    def begins(self, host: int, clients: Sequence[int]) -> int:
        """Records that a host is about to train clients, and so has survived the previous ones.

        Returns:
            The most deaths in a row in the updates of any of these clients.
        """
        for client in self._at.get(host, ()):
            del self._deaths[client]
        self._at[host] = clients
        return max(self._deaths[client] for client in clients)

    def died(self, host: int) -> None:
        """Records that a host died in the update that it began last."""
        self._deaths.update(self._at.pop(host, ()))

    def deaths(self) -> dict[int, int]:
        """Deaths by client since its last completed update."""
        return dict(self._deaths)

    def add(self, deaths: Mapping[int, int]) -> None:
        """Adds the counts of an earlier attempt's server."""
        self._deaths.update(deaths)


def verdict(clients: Sequence[int]) -> str:
    """The error message about clients whose update keeps killing hosts."""
    whose = f"client {clients[0]}" if len(clients) == 1 else f"clients {', '.join(map(str, clients))}, trained at once,"
    return (
        f"{whose} killed {'its' if len(clients) == 1 else 'their'} worker process {SEEN + 1} times in a row, most "
        "likely because memory ran out: lower local.batch_size, start fewer workers (resources.hosts), give each of "
        "them more of a node (resources.cpus_per_host), or look for native code that crashes (in its data or model)"
    )
