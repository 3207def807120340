"""Which host runs which client updates. Results do not depend on it, only time does."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import groupby

BASE_STEPS = 1.0
"""What a client update costs beside its steps (loading the model, adding its answer), in steps."""


def longest_first(clients: Sequence[int], steps: Sequence[int], hosts: int) -> list[list[int]]:
    """A cohort spread over hosts: longest update first, each to the host with the least work so far (Graham, 1969)."""
    load = [(0.0, host) for host in range(hosts)]
    assigned: list[list[int]] = [[] for _ in range(hosts)]
    for cost, client in sorted(zip(steps, clients, strict=True), key=lambda update: -update[0]):
        work, host = heapq.heappop(load)
        assigned[host].append(client)
        heapq.heappush(load, (work + cost + BASE_STEPS, host))
    return assigned


def home(client: int, hosts: int) -> int:
    """The host that keeps a client's state."""
    return client % hosts


def at_home(clients: Sequence[int], hosts: int) -> list[list[int]]:
    """A cohort, each client on its own host."""
    assigned: list[list[int]] = [[] for _ in range(hosts)]
    for client in clients:
        assigned[home(client, hosts)].append(client)
    return assigned


def segments(clients: Sequence[int], hosts: int, packed: bool) -> list[tuple[int, list[int]]]:
    """A relay as (host, consecutive clients): one segment if packed, else a new one wherever the host changes."""
    if packed:
        return [(0, list(clients))]
    return [(host, list(group)) for host, group in groupby(clients, key=lambda client: home(client, hosts))]
