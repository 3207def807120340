"""Which client kills its host again and again: kept by the server, which outlives the hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

SEEN = 2
"""Deaths in a client's update that are known to be in it. The first one of all has no witness: only hosts that were
started again, or belong to a run that had to go on, tell the server whom they are about to train."""


class DeadlyClients:
    """What hosts were at when they died."""

    def __init__(self) -> None:
        self._at: dict[int, Sequence[int]] = {}
        self._deaths: Counter[int] = Counter()

    def begins(self, host: int, clients: Sequence[int]) -> int:
        """Takes in that a host is about to train clients, and so has survived those before.

        Returns:
            In how many of their updates in a row, of the one that has most, a host has died.
        """
        for client in self._at.get(host, ()):
            del self._deaths[client]
        self._at[host] = clients
        return max(self._deaths[client] for client in clients)

    def died(self, host: int) -> None:
        """Takes in that a host died, in whatever it had begun last."""
        self._deaths.update(self._at.pop(host, ()))

    def deaths(self) -> dict[int, int]:
        """By client, the deaths in its updates, since it was last trained to the end."""
        return dict(self._deaths)

    def add(self, deaths: Mapping[int, int]) -> None:
        """Takes over what the server of another attempt counted."""
        self._deaths.update(deaths)


def verdict(clients: Sequence[int]) -> str:
    """What is said of clients in whose update so many hosts died."""
    whose = f"client {clients[0]}" if len(clients) == 1 else f"clients {', '.join(map(str, clients))}, trained at once,"
    return (
        f"{whose} killed {'its' if len(clients) == 1 else 'their'} host {SEEN + 1} times in a row, most likely because "
        "memory ran out: lower local.batch_size, start fewer hosts (resources.hosts) or give each of them more of a "
        "node (resources.cpus_per_host), or look for native code that crashes (its data, its model)"
    )
