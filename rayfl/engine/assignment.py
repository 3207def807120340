"""Groups clients that train together, by the scenario alone, and assigns groups to workers, which changes no result."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import groupby

from rayfl.planning.phase_plan import PhasePlan

BASE_STEPS = 1.0
"""Cost of a client update besides its steps (loading the model, adding its answer), in steps."""

BUCKETS = 64
"""Number of parts into which clients that keep state are divided, whatever the number of workers."""

Group = list[int]
"""Clients that train at once."""


def grouped(clients: Sequence[int], steps: Sequence[int], size: int) -> list[Group]:
    """Groups a cohort's clients by similar numbers of steps, longest first; ties keep the order drawn."""
    longest = sorted(range(len(clients)), key=lambda place: -steps[place])
    return [[clients[place] for place in longest[first : first + size]] for first in range(0, len(longest), size)]


def longest_first(groups: Sequence[Group], steps: Sequence[int], hosts: int) -> list[list[Group]]:
    """Spreads groups over workers: longest first, each to the worker with the least work so far (Graham, 1969).

    Args:
        groups: The groups.
        steps: Steps of each group, all of its updates together.
        hosts: Number of workers.

    Example:
        >>> from rayfl.schedules import longest_first
        >>> longest_first([[4], [7], [9]], steps=[10, 30, 25], hosts=2)
        [[[7]], [[9], [4]]]
    """
    load = [(0.0, host) for host in range(hosts)]
    assigned: list[list[Group]] = [[] for _ in range(hosts)]
    for cost, group in sorted(zip(steps, groups, strict=True), key=lambda update: -update[0]):
        work, host = heapq.heappop(load)
        assigned[host].append(group)
        heapq.heappush(load, (work + cost + BASE_STEPS * len(group), host))
    return assigned


def most_hosts(plans: Sequence[PhasePlan], num_clients: int) -> int:
    """Returns the number of hosts that can have work, for scenarios that leave it open."""
    return min(num_clients, BUCKETS) if any(plan.keeps_client_state for plan in plans) else num_clients


def home(client: int, hosts: int) -> int:
    """Returns the number of the host that keeps a client's state."""
    return client % BUCKETS % hosts


def at_home(clients: Sequence[int], steps: Sequence[int], size: int, hosts: int) -> list[list[Group]]:
    """Splits a cohort into groups for the workers that keep its clients' states.

    Example:
        >>> from rayfl.schedules import at_home
        >>> at_home([3, 4, 67], steps=[10, 10, 20], size=2, hosts=2)
        [[[4]], [[67, 3]]]
    """
    buckets: dict[int, list[int]] = {}
    for place, client in enumerate(clients):
        buckets.setdefault(client % BUCKETS, []).append(place)
    assigned: list[list[Group]] = [[] for _ in range(hosts)]
    for places in buckets.values():
        groups = grouped([clients[place] for place in places], [steps[place] for place in places], size)
        assigned[home(groups[0][0], hosts)] += groups
    return assigned


def segments(clients: Sequence[int], hosts: int, packed: bool) -> list[tuple[int, list[int]]]:
    """Splits a relay into (worker, consecutive clients): one segment if packed, else a new one when the worker changes.

    Example:
        >>> from rayfl.schedules import segments
        >>> segments([5, 1, 4], hosts=2, packed=True)
        [(0, [5, 1, 4])]
        >>> segments([5, 1, 4], hosts=2, packed=False)
        [(1, [5, 1]), (0, [4])]
    """
    if packed:
        return [(0, list(clients))]
    return [(host, list(group)) for host, group in groupby(clients, key=lambda client: home(client, hosts))]
