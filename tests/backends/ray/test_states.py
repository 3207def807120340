"""The states of a run on a cluster, and when it recovers, gives up and grows; without Ray."""

from __future__ import annotations

from itertools import product

import pytest

from rayfl.backends.ray.states import FOLLOWING, GrowthPolicy, RecoveryPolicy, RunStates, State
from rayfl.errors import LostError, ResourceError


def passing(*states: State) -> RunStates:
    """A run that has passed through these states after its start."""
    run = RunStates()
    for state in states:
        run.enter(state)
    return run


def test_a_run_that_ends_by_itself_leaves_nothing_under_way() -> None:
    run = RunStates()
    run.begin()
    assert run.state is State.RUNNING
    assert not run.is_idle
    run.enter(State.OVER)
    assert run.is_idle


@pytest.mark.parametrize(("state", "following"), list(product(State, State)))
def test_only_states_of_the_table_follow(state: State, following: State) -> None:
    run = RunStates()
    run.state = state
    if following is state or following in FOLLOWING[state]:
        run.enter(following)
        assert run.state is following
    else:
        with pytest.raises(RuntimeError, match=f"from {state.name} to {following.name}"):
            run.enter(following)


def test_a_run_that_was_given_up_never_goes_on() -> None:
    assert not FOLLOWING[State.GIVEN_UP]


def test_an_interrupted_run_stops_where_it_is() -> None:
    run = passing(State.RUNNING)
    run.interrupt()
    assert run.state is State.STOPPING
    with pytest.raises(RuntimeError):
        run.enter(State.RUNNING)
    run.enter(State.OVER)
    assert not run.is_idle


def test_what_a_run_was_asked_outlives_its_recovery() -> None:
    run = passing(State.RUNNING, State.RECOVERING)
    run.interrupt()
    states = [run.state]
    run.begin()
    assert [*states, run.state] == [State.RECOVERING, State.STOPPING]


def test_a_run_that_may_stop_later_recovers_until_its_last_round_is_known() -> None:
    run = passing(State.RUNNING)
    run.stop(7, settled=False)
    run.stop(9, settled=False)
    assert run.last_round == 7
    for state in (State.RECOVERING, State.RUNNING):
        run.enter(state)
        run.begin()
        assert run.state is State.RUNNING
    run.stop(8, settled=True)
    assert (run.state, run.last_round) == (State.STOPPING, 8)
    run.enter(State.RECOVERING)
    run.begin()
    assert run.state is State.STOPPING
    run.enter(State.OVER)
    assert not run.is_idle


def test_a_run_gives_up_after_as_many_attempts_without_a_new_round_and_waits_ever_longer() -> None:
    policy, error = RecoveryPolicy(8), LostError("worker 1 died")
    assert [policy.next(error).pause_s for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    with pytest.raises(LostError, match=r"worker 1 died; the run tried 8 times to continue"):
        policy.next(error)


def test_only_a_round_that_is_new_counts_as_progress() -> None:
    policy, error = RecoveryPolicy(2), LostError("lost")
    policy.reached(5)
    assert policy.next(error).number == 1
    policy.reached(4)
    assert policy.next(error).number == 2
    policy.reached(6)
    assert policy.next(error).number == 1
    assert policy.furthest == 6


@pytest.mark.parametrize(
    ("most", "repeatable", "why"),
    [(0, True, "resources.restarts is 0"), (0, False, "with `secure` noise a repeated update spends privacy again")],
)
def test_a_run_that_may_not_try_again_says_why(most: int, repeatable: bool, why: str) -> None:
    with pytest.raises(ResourceError, match=why):
        RecoveryPolicy(most, repeatable).next(ResourceError("lost"))


def test_the_cluster_is_asked_for_room_once_in_a_while() -> None:
    now, asked = [0.0], list[float]()

    def room() -> int:
        asked.append(now[0])
        return 3

    policy = GrowthPolicy(every_s=60, clock=lambda: now[0])
    grows = []
    for second in range(0, 200, 20):
        now[0] = second
        if policy.wants(2, room):
            grows.append(second)
    assert asked == grows == [60, 120, 180]
    now[0] = 240
    assert not policy.wants(3, room)
