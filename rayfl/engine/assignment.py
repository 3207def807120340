"""Which host runs which visits. Results do not depend on it, only time does."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import groupby

BASE_STEPS = 1.0
"""What a visit costs beside its steps (loading the model, adding its answer), in steps."""


def longest_first(clients: Sequence[int], steps: Sequence[int], hosts: int) -> list[list[int]]:
    """A cohort spread over hosts: longest visit first, each to the host with the least work so far (Graham, 1969)."""
    load = [(0.0, host) for host in range(hosts)]
    visits: list[list[int]] = [[] for _ in range(hosts)]
    for cost, client in sorted(zip(steps, clients, strict=True), key=lambda visit: -visit[0]):
        work, host = heapq.heappop(load)
        visits[host].append(client)
        heapq.heappush(load, (work + cost + BASE_STEPS, host))
    return visits


def home(client: int, hosts: int) -> int:
    """The host that keeps a client's state."""
    return client % hosts


def at_home(clients: Sequence[int], hosts: int) -> list[list[int]]:
    """A cohort, each client on its own host."""
    visits: list[list[int]] = [[] for _ in range(hosts)]
    for client in clients:
        visits[home(client, hosts)].append(client)
    return visits


def legs(clients: Sequence[int], hosts: int, packed: bool) -> list[tuple[int, list[int]]]:
    """A relay as (host, consecutive clients): one leg if packed, else a new leg wherever the host changes."""
    if packed:
        return [(0, list(clients))]
    return [(host, list(group)) for host, group in groupby(clients, key=lambda client: home(client, hosts))]
