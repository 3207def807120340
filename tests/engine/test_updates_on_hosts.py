"""Which updates of an asynchronous phase are submitted when, and to which host; no client trains here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rayfl.engine.assignment import PER_HOST, Group, Submitted, UpdatesOnHosts
from rayfl.engine.plan.round_times import Update

Told = list[tuple[int, int, list[Group]]]
"""Round, host and groups of each submission."""


def updates_on(hosts: int, at_once: int = 1) -> tuple[UpdatesOnHosts, Told]:
    """Client c takes c steps."""
    told: Told = []
    nothing: Any = None

    def submit(round: int, host: int, groups: Sequence[Group]) -> Submitted:
        told.append((round, host, list(groups)))
        return Submitted(round, host, [client for group in groups for client in group], nothing, nothing)

    return UpdatesOnHosts(hosts, at_once, lambda client: client, submit), told


def test_answers_that_are_needed_are_spread_longest_first_round_by_round() -> None:
    updates, told = updates_on(2)
    needed = [Update(1.0, 5, 2), Update(1.0, 3, 1), Update(1.5, 9, 1), Update(2.0, 4, 1)]
    assert [each.clients for each in updates.answers_of(needed)] == [[9], [4, 3], [5]]
    assert told == [(1, 0, [[9]]), (1, 1, [[4], [3]]), (2, 0, [[5]])]


def test_groups_that_train_together_are_not_run_ahead() -> None:
    updates, told = updates_on(1, at_once=2)
    updates.run_ahead([Update(1.0, 5, 1)], needed=0, ahead=9)
    assert told == []
    updates.answers_of([Update(1.0, 5, 1), Update(1.0, 3, 1), Update(1.0, 9, 1)])
    assert told == [(1, 0, [[9, 5], [3]])]


def test_updates_run_ahead_in_the_order_of_their_ends_on_the_host_with_least_work() -> None:
    updates, told = updates_on(2)
    flying = [
        Update(9.0, 7, 1),
        Update(1.0, 6, 1),
        Update(2.0, 2, 1),
        Update(0.5, 8, 1, answers=False),
        Update(3.0, 1, 1),
    ]
    updates.run_ahead(flying, needed=1, ahead=9)
    assert told == [(1, 0, [[6]]), (1, 1, [[2]]), (1, 1, [[1]])]  # 3 = PER_HOST * 2 - 1
    assert PER_HOST * 2 - 1 == 3
    updates.run_ahead(flying, needed=1, ahead=9)
    assert len(told) == 3
    # what is there already is not submitted again
    found = updates.answers_of([Update(1.0, 6, 1), Update(9.0, 7, 1)])
    assert [each.clients for each in found] == [[6], [7]]
    assert told[3:] == [(1, 0, [[7]])]
    # of those ahead two are left, and a third is submitted where the least was ever submitted
    updates.run_ahead([Update(2.0, 2, 1), Update(3.0, 1, 1), Update(4.0, 5, 3)], needed=1, ahead=9)
    assert told[4:] == [(3, 1, [[5]])]


def test_no_more_run_ahead_than_the_server_will_use_or_hosts_have_room_for() -> None:
    for needed, ahead, expected in ((1, 0, 0), (1, 1, 1), (2, 9, 0), (3, 9, 0), (0, 9, 2)):
        updates, told = updates_on(1)
        updates.run_ahead([Update(float(client), client, 1) for client in (1, 2, 3)], needed, ahead)
        assert len(told) == expected, (needed, ahead)
