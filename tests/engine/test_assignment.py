from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rayfl.engine.assignment import BUCKETS, at_home, grouped, home, longest_first, segments


@given(st.lists(st.integers(1, 100), min_size=1, max_size=60), st.integers(1, 8))
def test_every_client_update_is_assigned_once_and_no_host_waits_longer_than_the_longest_client_update(
    costs: list[int], hosts: int
) -> None:
    clients = [10 * number for number in range(len(costs))]
    assigned = longest_first([[client] for client in clients], costs, hosts)
    assert sorted(client for groups in assigned for (client,) in groups) == clients
    cost_of = dict(zip(clients, (cost + 1 for cost in costs), strict=True))
    loads = [sum(cost_of[client] for (client,) in groups) for groups in assigned]
    # greedy assignment: when the last update of the fullest host was placed, no host had less work
    assert max(loads) - min(loads) <= max(cost_of.values())


def test_the_longest_client_update_goes_first() -> None:
    assert longest_first([[1], [2], [3]], [5, 9, 5], 2) == [[[2]], [[1], [3]]]


def test_a_group_costs_a_base_for_each_of_its_clients() -> None:
    # with one base a group, the group of three would be the shorter one and get client 5 too
    assert longest_first([[1, 2, 3], [4], [5]], [10, 11, 1], 2) == [[[4], [5]], [[1, 2, 3]]]


def test_clients_of_like_lengths_are_grouped_the_longest_first_and_ties_in_the_order_drawn() -> None:
    assert grouped([7, 3, 9, 4, 1], [2, 5, 2, 5, 8], 2) == [[1, 3], [4, 7], [9]]


def test_clients_with_state_always_go_to_the_same_host() -> None:
    assert at_home([5, 2, 3, 0], [1, 1, 1, 1], 1, 3) == [[[3], [0]], [], [[5], [2]]]
    assert [home(client, 63) for client in (5, 63, 64, 127)] == [5, 0, 0, 0]  # by the client's bucket of 64


def test_more_hosts_than_buckets_share_clients_with_state_evenly() -> None:
    hosts, clients = 80, np.arange(8192)
    each = np.bincount(home(clients, hosts), minlength=hosts)
    assert set(each.tolist()) == {2 * 51, 2 * 52}  # of 4 096 places
    spread = at_home(clients.tolist(), [1] * 8192, 1, hosts)
    assert [len(groups) for groups in spread] == each.tolist()
    assert all(home(client, hosts) == host for host, groups in enumerate(spread) for (client,) in groups)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 9)), min_size=1, max_size=80, unique_by=lambda one: one[0]),
    st.integers(1, 5),
    st.integers(2, BUCKETS),
)
def test_which_clients_with_state_train_together_does_not_depend_on_the_number_of_hosts(
    cohort: list[tuple[int, int]], size: int, hosts: int
) -> None:
    clients, steps = [client for client, _ in cohort], [number for _, number in cohort]
    (alone,), spread = at_home(clients, steps, size, 1), at_home(clients, steps, size, hosts)
    assert sorted(group for groups in spread for group in groups) == sorted(alone)
    assert sorted(client for group in alone for client in group) == sorted(clients)
    for host, groups in enumerate(spread):
        assert all(home(client, hosts) == host for group in groups for client in group)


def test_consecutive_clients_of_one_host_are_one_segment() -> None:
    assert segments([0, 2, 1, 3, 5, 4], hosts=2, packed=False) == [(0, [0, 2]), (1, [1, 3, 5]), (0, [4])]


def test_a_packed_relay_is_one_segment() -> None:
    assert segments([0, 2, 1, 3], hosts=2, packed=True) == [(0, [0, 2, 1, 3])]
