"""Which clients train together, which the scenario alone decides; and on which host, which changes no result."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import groupby

from rayfl.planning.phase_plan import PhasePlan

BASE_STEPS = 1.0
"""What a client update costs beside its steps (loading the model, adding its answer), in steps."""

BUCKETS = 64
"""Into so many parts clients that keep state fall, however many hosts there are to own them."""

Group = list[int]
"""Clients whose updates are open at once."""


def grouped(clients: Sequence[int], steps: Sequence[int], size: int) -> list[Group]:
    """A cohort in groups of clients with like numbers of steps, the longest first; ties in the order drawn."""
    longest = sorted(range(len(clients)), key=lambda place: -steps[place])
    return [[clients[place] for place in longest[first : first + size]] for first in range(0, len(longest), size)]


def longest_first(groups: Sequence[Group], steps: Sequence[int], hosts: int) -> list[list[Group]]:
    """Groups spread over hosts: the longest first, each to the host with the least work so far (Graham, 1969).

    Args:
        groups: The groups.
        steps: Of all updates of each group together.
        hosts: How many hosts there are.

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
    """How many hosts have something to do, where the scenario leaves their number open."""
    return min(num_clients, BUCKETS) if any(plan.keeps_client_state for plan in plans) else num_clients


def home(client: int, hosts: int) -> int:
    """The host that keeps a client's state."""
    return client % BUCKETS % hosts


def at_home(clients: Sequence[int], steps: Sequence[int], size: int, hosts: int) -> list[list[Group]]:
    """A cohort in groups of clients of one bucket, each group on the host that owns the bucket.

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
    """A relay as (host, consecutive clients): one segment if packed, else a new one wherever the host changes.

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
