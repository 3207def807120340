"""Which host runs which of the updates in flight, and when: before the server needs their answers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rayfl.engine.assignment import BASE_STEPS, Group, grouped, longest_first
from rayfl.engine.backend import Ref
from rayfl.engine.calls import Call
from rayfl.planning.arrivals import Update

PER_HOST = 2
"""Updates that run or wait on a host at a time, so that it has the next one when it is done."""


@dataclass(frozen=True)
class Submitted:
    """Updates that began in the same round, on a host.

    Attributes:
        round: Number of the round in which they began.
        host: Where they are.
        clients: Whose they are.
        part: Reference to their answers.
        report: The call that reports on them.
    """

    round: int
    host: int
    clients: Sequence[int]
    part: Ref
    report: Call


class UpdatesOnHosts:
    """Submits the updates of an asynchronous phase; where and when they run changes no result.

    Args:
        hosts: How many hosts there are.
        at_once: How many clients train at once.
        steps: Of a client's update.
        submit: Submits groups of clients that began in a round of this number to a host.
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
        self._given = [0.0] * hosts

    def answers_of(self, updates: Sequence[Update]) -> list[Submitted]:
        """The answers of updates that are needed now: those that were submitted before, and the rest."""
        found = [self._ahead.pop(update.client) for update in updates if update.client in self._ahead]
        known = {(each.round, client) for each in found for client in each.clients}
        rest = sorted((update.round, update.client) for update in updates)
        for round in sorted({update.round for update in updates}):
            clients = [client for began, client in rest if began == round and (began, client) not in known]
            steps = {client: self._steps(client) for client in clients}
            groups = grouped(clients, list(steps.values()), self._at_once)
            costs = [sum(steps[client] for client in group) for group in groups]
            spread = enumerate(longest_first(groups, costs, self._hosts))
            found += [self._submit(round, host, own) for host, own in spread if own]
        return found

    def run_ahead(self, in_flight: Iterable[Update], needed: int, ahead: int) -> None:
        """Submits the updates that the server will need first, where its next steps leave hosts without work.

        Args:
            in_flight: Updates that have not ended.
            needed: How many answers its next step takes in, of which no host need be told yet.
            ahead: How many at most, at any time.
        """
        if self._at_once > 1:
            return  # who trains with whom would depend on what was submitted before
        most = min(ahead, max(0, PER_HOST * self._hosts - needed))
        for update in heapq.nsmallest(most, (update for update in in_flight if update.answers)):
            if update.client not in self._ahead and len(self._ahead) < most:
                host = min(range(self._hosts), key=self._given.__getitem__)
                self._given[host] += self._steps(update.client) + BASE_STEPS
                self._ahead[update.client] = self._submit(update.round, host, [[update.client]])
