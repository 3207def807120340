"""Groups clients that train together, by the scenario alone, and assigns groups to workers, which changes no result.

The updates of an asynchronous phase are distributed over hosts ahead of the server's need for their answers.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import numpy as np

from rayfl.engine.backend import Call, Ref
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.round_times import Update

BASE_STEPS = 1.0
"""Cost of a client update besides its steps (loading the model, adding its answer), in steps."""

BUCKETS = 64
"""Number of parts of clients that keep state. Only those of the same part train at once, on any number of workers."""

HOMES = 4096
"""Number of parts that more than `BUCKETS` workers share, whose clients train one by one."""

Group = list[int]
"""Clients that train at once."""

Clients = TypeVar("Clients", int, np.ndarray)


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


MERGED = 8
"""Number of hosts' or nodes' sums that one process adds up."""


def merge_steps(hosts: Sequence[int], nodes: Sequence[object]) -> list[list[list[int]]]:
    """Plans how hosts' sums become at most `MERGED`: first on each node, then over nodes in a tree.

    Args:
        hosts: The hosts that have a sum.
        nodes: The node of every host.

    Returns:
        Steps of merges: lists of hosts whose sums are merged by the first of them, which has the result. Hosts whose
        sum waits for a later step, or for the server, are not listed.

    Example:
        >>> from rayfl.engine.assignment import merge_steps
        >>> merge_steps(range(9), nodes="aaabbbccc")
        [[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]
    """
    steps: list[list[list[int]]] = []
    if len(hosts) <= MERGED:
        return steps
    on_node: dict[object, list[int]] = {}
    for host in hosts:
        on_node.setdefault(nodes[host], []).append(host)
    groups = list(on_node.values())
    while True:
        if merged := [group for group in groups if len(group) > 1]:
            steps.append(merged)
        heads = [group[0] for group in groups]
        if len(heads) <= MERGED:
            return steps
        groups = [heads[first : first + MERGED] for first in range(0, len(heads), MERGED)]


def most_homes(at_once: int) -> int:
    """The largest number of hosts that clients with state can be divided among; `at_once` of them train at once."""
    return HOMES if at_once == 1 else BUCKETS


def most_hosts(plans: Sequence[PhasePlan], at_once: int) -> int:
    """Returns the number of hosts that can have work, for scenarios that leave it open; see `most_homes`."""
    num_clients = max(plan.num_clients for plan in plans)
    return min(num_clients, most_homes(at_once)) if any(plan.keeps_client_state for plan in plans) else num_clients


def home(client: Clients, hosts: int) -> Clients:
    """Returns the number of the host that keeps a client's state, or of those that keep the states of several."""
    return client % (BUCKETS if hosts <= BUCKETS else HOMES) % hosts


def at_home(clients: Sequence[int], steps: Sequence[int], size: int, hosts: int) -> list[list[Group]]:
    """Splits a cohort into groups for the workers that keep its clients' states.

    Example:
        >>> from rayfl.schedules import at_home
        >>> at_home([3, 4, 67], steps=[10, 10, 20], size=2, hosts=2)
        [[[4]], [[67, 3]]]
    """
    buckets: dict[int, list[int]] = {}
    for place, client in enumerate(clients):
        buckets.setdefault(client % (BUCKETS if hosts <= BUCKETS else HOMES), []).append(place)
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


PER_HOST = 2
"""Updates or units that run or wait on a host at a time, so it can start the next one immediately."""

UNITS = 8
"""Units that a host's share of a round is divided into, if it has as many groups and they are not too short; and units
whose answers a host may hold that its death would lose."""

SHORTEST_S = 0.1
LONGEST_S = 1.0
"""Limits on the time that a unit should take: a call costs a millisecond or two, and what a host has in hand is what
it may lose, and what other hosts cannot take from it."""


class Units:
    """A round's groups, in units that wait for hosts. Which host runs a unit does not change the result.

    Args:
        shares: The groups of each host, longest first.
        cost: Steps of the updates of a group, with `BASE_STEPS` for each.
        step_s: Seconds that a step takes; None if it was not measured yet.
        movable: Whether a host without units takes those that wait for others.
        nodes: The node of each host, if a host should first take those that wait on its own node.
    """

    def __init__(
        self,
        shares: Sequence[Sequence[Group]],
        cost: Callable[[Group], float],
        step_s: float | None = None,
        movable: bool = True,
        nodes: Sequence[object] = (),
    ) -> None:
        self._cost, self._step_s, self._movable, self._nodes = cost, step_s, movable, nodes
        self._waiting = [deque(self._units_of(share)) for share in shares]

    def take(self, host: int) -> list[Group] | None:
        """The next unit for a host: its own, or else the most expensive one that waits for another; None if none."""
        own = self._waiting[host]
        if not own and self._movable:
            own = self._waiting[max(range(len(self._waiting)), key=lambda other: self._worth(host, other))]
        return own.popleft() if own else None

    def _worth(self, host: int, other: int) -> tuple[bool, float]:
        """How much a host would rather take another's next unit: one on its node first, then by cost."""
        waiting = self._waiting[other]
        near = bool(waiting and self._nodes and self._nodes[host] == self._nodes[other])
        return near, self._cost_of(waiting[0]) if waiting else 0.0

    def waiting(self, host: int) -> int:
        """Number of a host's own units that wait."""
        return len(self._waiting[host])

    def is_done(self, host: int) -> bool:
        """Whether nothing waits that a host could take."""
        return not any(self._waiting) if self._movable else not self._waiting[host]

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def _units_of(self, share: Sequence[Group]) -> list[list[Group]]:
        """Consecutive groups, as equal in cost as possible."""
        rest = self._cost_of(share)
        number = self._number(rest)
        units: list[list[Group]] = []
        in_unit = 0.0
        for group in share:
            if not units or (in_unit >= rest / number and number > 1):
                rest, number, in_unit = rest - in_unit, number - bool(units), 0.0
                units.append([])
            units[-1].append(group)
            in_unit += self._cost(group)
        return units

    def _number(self, cost: float) -> int:
        """Number of units for work of this cost."""
        if self._step_s is None:
            return UNITS
        seconds = cost * self._step_s
        return max(1, int(seconds / LONGEST_S), min(UNITS, int(seconds / SHORTEST_S)))

    def _cost_of(self, groups: Iterable[Group]) -> float:
        return sum(map(self._cost, groups))


@dataclass(frozen=True)
class Submitted:
    """Updates that began in the same round and run on one worker.

    Attributes:
        round: Number of the round in which they began.
        host: Number of the worker process.
        clients: The clients.
        part: Reference to their answers.
        report: The call that returns the report on them.
    """

    round: int
    host: int
    clients: Sequence[int]
    part: Ref
    report: Call


class UpdatesOnHosts:
    """Submits the updates of an asynchronous phase; where and when they run does not change the result.

    Args:
        hosts: Number of hosts.
        at_once: Number of clients that train at once.
        steps: Function from a client to the number of steps of its update.
        submit: Submits groups of clients that began in the given round to the given host.
    """

    def __init__(
        self,
        hosts: int,
        at_once: int,
        steps: Callable[[int], int],
        submit: Callable[[int, int, Sequence[Group]], Submitted],
    ) -> None:
        self._hosts, self._at_once, self._steps, self._submit = hosts, at_once, steps, submit
        self._ahead: dict[int, Submitted] = {}
        self._load = [0.0] * hosts

    def spread_over(self, hosts: int) -> None:
        """Submits later updates to this many hosts; more may have joined."""
        self._load += [min(self._load)] * (hosts - self._hosts)
        self._hosts = hosts

    def answers_of(self, updates: Sequence[Update]) -> list[Submitted]:
        """Returns the answers of updates that are needed now, and submits those not submitted before."""
        submitted = [self._ahead.pop(update.client) for update in updates if update.client in self._ahead]
        known = {(each.round, client) for each in submitted for client in each.clients}
        rest = sorted((update.round, update.client) for update in updates)
        for round in sorted({update.round for update in updates}):
            clients = [client for began, client in rest if began == round and (began, client) not in known]
            steps = {client: self._steps(client) for client in clients}
            groups = grouped(clients, list(steps.values()), self._at_once)
            costs = [sum(steps[client] for client in group) for group in groups]
            spread = enumerate(longest_first(groups, costs, self._hosts))
            submitted += [self._submit(round, host, own) for host, own in spread if own]
        return submitted

    def run_ahead(self, in_flight: Iterable[Update], needed: int, ahead: int) -> None:
        """Submits the updates that the server will need first, if its next step would leave hosts idle.

        Args:
            in_flight: Updates that have not ended.
            needed: Number of answers that the server's next step uses, which are not submitted here.
            ahead: Limit on the number of updates submitted ahead at any time.
        """
        if self._at_once > 1:
            return  # the groups that train together would depend on earlier submissions
        most = min(ahead, max(0, PER_HOST * self._hosts - needed))
        for update in heapq.nsmallest(most, (update for update in in_flight if update.answers)):
            if update.client not in self._ahead and len(self._ahead) < most:
                host = min(range(self._hosts), key=self._load.__getitem__)
                self._load[host] += self._steps(update.client) + BASE_STEPS
                self._ahead[update.client] = self._submit(update.round, host, [[update.client]])
