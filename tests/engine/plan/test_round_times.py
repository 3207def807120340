"""How rounds go by the virtual clock, against times and energies computed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.engine.plan.participation import ExchangeTime, Participant
from rayfl.engine.plan.round_times import RoundTimes, parallel_round, relay_round
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.totals import Message, Simulated, Traffic
from tests.counting import Counted, touched_by

FIRST = RoundIndex(0, 1, 1)
DOWN, UP = Traffic(1, 10, 0, 40, 0), Traffic(1, 0, 5, 0, 20)


@dataclass
class Stopwatch:
    """A clock whose times are a table: by client, (down, compute, up) of every exchange; watts 2 and 3."""

    times: dict[int, list[tuple[float, float, float]]]
    lost: set[int] = field(default_factory=set)
    away_from: dict[int, float] = field(default_factory=dict)
    now: float = 0.0

    def messages(self, index: RoundIndex) -> Sequence[Message]:
        return [Message(DOWN, UP)] * len(next(iter(self.times.values())))

    def exchanges(self, index: RoundIndex, client: int) -> list[ExchangeTime]:
        return [ExchangeTime(*time) for time in self.times[client]]

    def is_available(self, index: RoundIndex, client: int, at: float) -> bool:
        return at < self.away_from.get(client, float("inf"))

    def first_available(self, clients: Iterable[int], at: float) -> float:
        return float("inf")

    def update(self, index: RoundIndex, client: int, at: float) -> Participant:
        return Participant(client, answers=client not in self.lost)

    def joules(self, client: int, time: ExchangeTime, until: float = float("inf")) -> float:
        """By a sum over hundredths of a second, which takes nothing from the clock's own formula."""
        instants = (step / 100 for step in range(round(min(until, time.seconds) * 100)))
        return sum(2.0 if time.down <= at < time.down + time.compute else 3.0 for at in instants) / 100


def parallel(clock: Any, most: int, deadline_s: float | None = None, quorum: int = 1) -> RoundTimes:
    participants = [Participant(client, answers=client not in clock.lost) for client in clock.times]
    return parallel_round(clock, FIRST, participants, most, deadline_s, quorum)


def relay(clock: Any, *clients: int) -> RoundTimes:
    return relay_round(clock, FIRST, [Participant(client) for client in clients])


def test_a_round_lasts_as_long_as_its_slowest_client() -> None:
    times = parallel(Stopwatch({4: [(1, 2, 3)], 2: [(0.5, 4, 0.5)], 7: [(0, 9, 1)]}), most=3)
    assert times.counted == [4, 2, 7]
    assert times.simulated.seconds == 10
    assert times.simulated.joules == pytest.approx(4 * 3 + 2 * 2 + 1 * 3 + 4 * 2 + 1 * 3 + 9 * 2)
    assert (times.simulated.transfer, times.simulated.training) == (4 + 1 + 1, 2 + 4 + 9)
    assert times.unanswered == {}


def test_with_over_selection_the_first_answers_count_and_the_others_stop() -> None:
    clock = Stopwatch({4: [(1, 2, 3)], 2: [(1, 8, 1)], 7: [(1, 0, 1)], 5: [(2, 1, 3)]})
    times = parallel(clock, most=3)
    assert times.counted == [4, 7, 5]  # in the order drawn, though 7 is first
    assert times.simulated.seconds == 6
    assert times.simulated.late == 1
    assert times.simulated.joules == pytest.approx((4 * 3 + 2 * 2) + (1 * 3 + 5 * 2) + 2 * 3 + (5 * 3 + 1 * 2))
    assert (times.simulated.transfer, times.simulated.training) == (4 + 1 + 2 + 5, 2 + 5 + 0 + 1)  # 2 stops after 6 s
    assert times.unanswered == {2: DOWN}


def test_of_answers_at_the_same_time_those_of_who_was_drawn_earlier_count() -> None:
    assert parallel(Stopwatch({8: [(1, 1, 1)], 3: [(1, 1, 1)], 5: [(1, 1, 1)]}), most=2).counted == [8, 3]


def test_a_deadline_cuts_who_is_late_and_ends_the_round() -> None:
    times = parallel(Stopwatch({0: [(1, 3, 1)], 1: [(1, 3, 1.5)], 2: [(0, 1, 0)]}), most=3, deadline_s=5.0)
    assert times.counted == [0, 2]
    assert times.simulated.seconds == 5
    assert (times.simulated.dropped, times.simulated.late) == (0, 1)
    nobody_late = parallel(Stopwatch({0: [(1, 3, 1)], 2: [(0, 1, 0)]}), most=2, deadline_s=60.0)
    assert nobody_late.simulated.seconds == 5


def test_a_dropout_is_missed_when_its_answer_is_due_unless_enough_others_answered_by_then() -> None:
    clock = Stopwatch({0: [(1, 1, 1)], 1: [(1, 6, 1)], 2: [(1, 2, 1)]}, lost={1})
    times = parallel(clock, most=3)
    assert times.counted == [0, 2]
    assert times.simulated.seconds == 8
    assert (times.simulated.dropped, times.simulated.late) == (1, 0)
    assert times.unanswered == {1: DOWN}
    assert parallel(clock, most=2).simulated.seconds == 4


def test_exchanges_follow_one_another_each_with_its_own_deadline() -> None:
    clock = Stopwatch({0: [(1, 1, 1), (1, 1, 1)], 1: [(0, 2, 0), (2, 2, 2)], 2: [(0, 9, 0), (0, 0, 0)]})
    times = parallel(clock, most=3, deadline_s=5.0)
    assert times.counted == [0]
    assert times.simulated.seconds == 5 + 5
    assert times.simulated.late == 2
    assert times.unanswered == {2: DOWN, 1: DOWN + UP + DOWN}
    everybody = parallel(clock, most=3)
    assert everybody.counted == [0, 1, 2]
    assert everybody.simulated.seconds == 9 + 6


def test_a_round_below_its_quorum_is_given_up_and_has_cost_what_it_cost() -> None:
    clock = Stopwatch({0: [(1, 1, 1)], 1: [(1, 6, 1)], 2: [(1, 2, 1)]}, lost={1})
    times, kept = parallel(clock, most=3, quorum=3), parallel(clock, most=3, quorum=2)
    assert times.counted == []
    assert times.unanswered == {0: DOWN + UP, 1: DOWN, 2: DOWN + UP}
    assert times.simulated == kept.simulated
    assert kept.counted == [0, 2]


def test_a_rounds_times_take_work_in_proportion_to_its_cohort() -> None:
    def work(clients: int) -> int:
        clock = Stopwatch({Counted(client): [(0.0, 0.0, 0.0)] * 2 for client in range(clients)})
        return touched_by(lambda: parallel(clock, clients // 2))

    assert work(400) < 3 * work(200)


def test_a_round_without_clients_takes_no_time() -> None:
    clock: Any = Stopwatch({0: [(1, 1, 1)]})
    assert parallel_round(clock, FIRST, [], 3) == RoundTimes([], Simulated(joules=0.0, transfer=0.0, training=0.0))


SECONDS = st.integers(0, 8).map(float)


@given(
    st.lists(st.tuples(SECONDS, SECONDS, SECONDS, st.booleans()), min_size=1, max_size=7),
    st.integers(1, 7),
    st.none() | SECONDS,
)
def test_the_k_fastest_within_the_deadline_count(
    drawn: list[tuple[float, float, float, bool]], most: int, deadline: float | None
) -> None:
    clock = Stopwatch(
        {client: [time[:3]] for client, time in enumerate(drawn)},
        lost={client for client, time in enumerate(drawn) if time[3]},
    )
    times = parallel(clock, most, deadline)
    total = {client: sum(time[:3]) for client, time in enumerate(drawn)}
    able = [client for client in total if not drawn[client][3] and (deadline is None or total[client] <= deadline)]
    expected = sorted(able, key=lambda client: (total[client], client))[:most]
    assert times.counted == sorted(expected)
    assert times.unanswered.keys() == total.keys() - set(expected)
    assert times.simulated.dropped + times.simulated.late == len(times.unanswered)
    if deadline is not None:
        assert times.simulated.seconds <= deadline
    assert times.simulated.seconds <= max(total.values())


def test_hops_of_a_relay_add_up_and_who_is_missing_leaves_the_model_as_it_was() -> None:
    clock = Stopwatch({3: [(1, 2, 1)], 1: [(1, 5, 1)], 6: [(2, 2, 2)], 0: [(1, 0, 1)]}, lost={1}, away_from={6: 110.0})
    clock.now = 100.0
    times = relay(clock, 3, 1, 6, 0)
    assert times.counted == [3, 0]
    # 3 takes 4 s, 1 is missed after 7 s, at 111 s client 6 is away, and 0 takes 2 s
    joules = 2 * 3 + 2 * 2 + 2 * 3 + 5 * 2 + 2 * 3
    assert times.simulated.joules == pytest.approx(joules)
    spent = Simulated(13.0, unavailable=1, dropped=1, transfer=2.0 + 2 + 2, training=2.0 + 5 + 0)  # together 13 s
    assert replace(times.simulated, joules=None) == spent
    assert times.unanswered == {1: DOWN, 6: Traffic()}
    assert relay(replace(clock, now=0.0), 3, 1, 6).counted == [3, 6]
