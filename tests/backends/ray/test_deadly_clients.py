"""Whom a host's death is counted against, and until when."""

from __future__ import annotations

from rayfl.backends.ray.failures import SEEN, DeadlyClients


def test_deaths_are_counted_by_client_over_hosts_and_attempts() -> None:
    deadly = DeadlyClients()
    assert deadly.begins(0, [4]) == 0
    deadly.died(0)
    assert deadly.begins(1, [4, 7]) == 1
    deadly.died(1)
    another = DeadlyClients()
    another.add(deadly.deaths())
    assert another.begins(0, [4]) == SEEN
    assert another.begins(1, [7]) == 1


def test_a_client_that_has_since_finished_training_is_no_longer_a_suspect() -> None:
    deadly = DeadlyClients()
    for _ in range(SEEN):
        deadly.begins(0, [4])
        deadly.died(0)
    assert deadly.begins(0, [4]) == SEEN
    deadly.begins(0, [5])  # so 4 is over
    assert deadly.deaths() == {}
    assert deadly.begins(1, [4]) == 0


def test_no_client_is_blamed_for_a_host_that_dies_before_it_begins() -> None:
    deadly = DeadlyClients()
    deadly.begins(0, [4])
    deadly.died(0)
    deadly.died(0)
    assert deadly.deaths() == {4: 1}
