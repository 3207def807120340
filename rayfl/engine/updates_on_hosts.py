"""Distributes the updates of an asynchronous phase over hosts, ahead of the server's need for their answers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rayfl.engine.assignment import BASE_STEPS, Group, grouped, longest_first
from rayfl.engine.backend import Ref
from rayfl.engine.calls import Call
from rayfl.planning.arrivals import Update

PER_HOST = 2
"""Updates that run or wait on a host at a time, so it can start the next one immediately."""


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

    def answers_of(self, updates: Sequence[Update]) -> list[Submitted]:
        """Returns the answers of updates that are needed now, and submits those not submitted before."""
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
