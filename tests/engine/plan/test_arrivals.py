"""Asynchronous training by the virtual clock: who begins when, and whose answers a step takes in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from rayfl.engine.plan.participation import Participant
from rayfl.engine.plan.round_times import Arrivals, Step, Update

Begin = Callable[[int, float], Participant | None]


def lasting(*seconds: float) -> Begin:
    """Client n takes as long as the n-th of these."""
    return lambda client, _: Participant(client, ends=seconds[client])


def run(arrivals: Arrivals, rounds: int, candidates: Sequence[int], begin: Begin) -> list[Step]:
    return [arrivals.step(round, candidates, begin) for round in range(1, rounds + 1)]


def taken(step: Step) -> list[tuple[float, int, int]]:
    return [(update.ends, update.client, update.round) for update in step.taken]


def test_an_answer_makes_room_for_the_next_candidate_which_begins_at_once() -> None:
    """By hand: 0 takes 2 s, 1 takes 5 s, 2 takes 4 s, two of them at a time, a step for every two answers."""
    arrivals = Arrivals(2, 2)
    first, second = run(arrivals, 2, [0, 1, 2], lasting(2, 5, 4))
    assert (first.started, taken(first)) == ([0, 1, 2], [(2, 0, 1), (5, 1, 1)])
    assert (second.started, taken(second)) == ([0, 1], [(6, 2, 1), (7, 0, 2)])
    assert arrivals.clock == 7
    assert sorted(arrivals.in_flight) == [Update(11, 1, 2)]


def test_simultaneous_answers_are_processed_by_client_number_before_any_client_begins() -> None:
    arrivals = Arrivals(4, 2)
    first, second, third = run(arrivals, 3, [3, 1, 2, 0], lasting(1, 1, 1, 1))
    assert (first.started, taken(first)) == ([3, 1, 2, 0], [(1, 0, 1), (1, 1, 1)])
    assert (second.started, taken(second)) == ([], [(1, 2, 1), (1, 3, 1)])
    assert (third.started, taken(third)) == ([3, 1, 2, 0], [(2, 0, 3), (2, 1, 3)])


def test_a_client_begins_once_between_two_steps_and_its_place_waits() -> None:
    """The quick client would repeat its update; it begins again with the next model."""
    arrivals = Arrivals(2, 2)
    first, second = run(arrivals, 2, [0, 1], lasting(1, 5))
    assert (first.started, taken(first)) == ([0, 1], [(1, 0, 1), (5, 1, 1)])
    assert (second.started, taken(second)) == ([0, 1], [(6, 0, 2), (10, 1, 2)])


def test_an_update_that_ends_without_an_answer_frees_its_place_then() -> None:
    def begin(client: int, at: float) -> Participant:
        return Participant(client, ends=float(client + 1), answers=client != 0)

    step = Arrivals(2, 2).step(1, [0, 1, 2], begin)
    assert step.started == [0, 1, 2]
    assert [update.client for update in step.lost] == [0]
    assert taken(step) == [(2, 1, 1), (4, 2, 1)]


def test_a_step_takes_the_answers_that_exist_if_no_other_client_trains() -> None:
    def begin(client: int, at: float) -> Participant:
        return Participant(client, ends=1.0, answers=client == 2)

    arrivals = Arrivals(2, 3)
    assert taken(arrivals.step(1, [0, 1, 2, 3], begin)) == [(2, 2, 1)]
    nobody = arrivals.step(2, [0, 1], begin)
    assert (nobody.taken, len(nobody.lost), arrivals.in_flight) == ([], 2, [])


def test_an_unavailable_client_is_passed_over_until_a_later_place() -> None:
    def begin(client: int, at: float) -> Participant | None:
        return None if client == 0 and at < 2 else Participant(client, ends=2.0)

    step = Arrivals(1, 2).step(1, [0, 1, 2], begin)
    assert taken(step) == [(2, 1, 1), (4, 0, 1)]


@pytest.mark.parametrize("seed", range(5))
def test_for_any_durations_no_client_trains_twice_at_once_and_time_never_goes_back(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def begin(client: int, at: float) -> Participant:
        return Participant(client, ends=float(rng.integers(0, 5)), answers=bool(rng.random() < 0.8))

    arrivals, last = Arrivals(5, 4), 0.0
    for round in range(1, 40):
        step = arrivals.step(round, [int(client) for client in rng.permutation(12)], begin)
        ends = [update.ends for update in step.taken]
        assert ends == sorted(ends)
        assert last <= ends[0]
        last = arrivals.clock
        assert last == ends[-1]
        assert len(set(step.started)) == len(step.started)
        training = [update.client for update in arrivals.in_flight]
        assert len(set(training)) == len(training) <= 5


def test_a_snapshot_of_what_is_in_flight_goes_on_the_same_way() -> None:
    whole, stopped = Arrivals(3, 2), Arrivals(3, 2)
    begin = lasting(3, 1, 4, 1, 5)
    expected = run(whole, 6, [4, 2, 0, 1, 3], begin)
    assert run(stopped, 3, [4, 2, 0, 1, 3], begin) == expected[:3]
    again = Arrivals(3, 2, stopped.clock, sorted(stopped.in_flight, reverse=True))
    assert [again.step(round, [4, 2, 0, 1, 3], begin) for round in (4, 5, 6)] == expected[3:]
