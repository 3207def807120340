from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rayfl.engine.assignment import at_home, home, longest_first, segments


@given(st.lists(st.integers(1, 100), min_size=1, max_size=60), st.integers(1, 8))
def test_every_client_update_is_assigned_once_and_no_host_waits_longer_than_the_longest_client_update(
    costs: list[int], hosts: int
) -> None:
    clients = [10 * number for number in range(len(costs))]
    assigned = longest_first(clients, costs, hosts)
    assert sorted(client for part in assigned for client in part) == clients
    cost_of = dict(zip(clients, (cost + 1 for cost in costs), strict=True))
    loads = [sum(cost_of[client] for client in part) for part in assigned]
    # greedy assignment: when the last update of the fullest host was placed, no host had less work
    assert max(loads) - min(loads) <= max(cost_of.values())


def test_the_longest_client_update_goes_first() -> None:
    assert longest_first([1, 2, 3], [5, 9, 5], 2) == [[2], [1, 3]]


def test_clients_with_state_always_go_to_the_same_host() -> None:
    assert at_home([5, 2, 3, 0], 3) == [[3, 0], [], [5, 2]]
    assert home(5, 3) == home(5, 3) == 2


def test_consecutive_clients_of_one_host_are_one_segment() -> None:
    assert segments([0, 2, 1, 3, 5, 4], hosts=2, packed=False) == [(0, [0, 2]), (1, [1, 3, 5]), (0, [4])]


def test_a_packed_relay_is_one_segment() -> None:
    assert segments([0, 2, 1, 3], hosts=2, packed=True) == [(0, [0, 2, 1, 3])]
