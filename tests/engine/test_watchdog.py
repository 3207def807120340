"""Silence is reported, and ends where measured times say that nothing will come any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Call, Ref
from rayfl.engine.events import Waiting
from rayfl.engine.watchdog import SILENCE_FACTOR, WARNINGS, WARNINGS_AT_FIRST, Watchdog
from rayfl.errors import ClientError, LostError
from tests.engine.scenes import tables


class Clockwork(InlineBackend):
    """Every call is answered at a certain time of its own clock; its reference is that time."""

    def __init__(self, trains_until: float = 0.0) -> None:
        self.now, self._trains_until = 0.0, trains_until

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        self.now = min(max(self.now, min(refs)), self.now + timeout_s)
        return [ref for ref in refs if ref <= self.now]

    def get(self, ref: Ref) -> Any:
        if isinstance(ref, Failure):
            raise ref.error
        return ref

    def progress(self) -> int:
        return int(min(self.now, self._trains_until))


class Failure(float):
    """The time at which a call fails."""

    error: Exception


def watched(backend: Clockwork, **resources: Any) -> Watchdog:
    scenario = Scenario.from_tables(tables(resources={"watchdog_s": 10} | resources))
    return Watchdog(scenario, backend, lambda: backend.now)


START = 80.0
"""When the first answer comes, for which hosts have to start."""


def measured(longest: float) -> tuple[Clockwork, Watchdog]:
    """One that has waited so long for the second answer."""
    backend = Clockwork()
    watchdog = watched(backend)
    silences(watchdog, START, START + longest)
    return backend, watchdog


def silences(watchdog: Watchdog, *ends: float) -> list[float]:
    """How long nothing had come back at each warning."""
    calls = [Call(end, f"call {number}", host=0) for number, end in enumerate(ends)]
    return [event.seconds for event in watchdog.wait(calls, "p", 1) if isinstance(event, Waiting)]


def test_the_values_come_in_the_order_of_the_calls_and_silence_is_reported() -> None:
    waiting = watched(Clockwork()).wait([Call(30, "host 0"), Call(5, "host 1")], "p", 3)
    first = next(waiting)
    assert first == Waiting("p", 3, 10.0, ("host 0",))
    assert next(waiting) == Waiting("p", 3, 20.0, ("host 0",))
    with pytest.raises(StopIteration) as ended:
        next(waiting)
    assert ended.value.value == [30, 5]


@pytest.mark.parametrize("longest", [1.0, 7.0], ids=["a multiple of the watchdog's", "a multiple of the longest"])
def test_a_silence_far_longer_than_any_before_is_the_last(longest: float) -> None:
    backend, watchdog = measured(longest)
    limit = max(WARNINGS * 10, SILENCE_FACTOR * longest)
    assert len(silences(watchdog, backend.now + limit - 1)) == limit // 10 - 1  # late, but in time
    backend, watchdog = measured(longest)
    with pytest.raises(LostError, match=rf"limit is {limit:.0f} s \(the longest wait so far was {longest} s\).*call 0"):
        silences(watchdog, 1e9)
    assert backend.now == pytest.approx(START + longest + limit)


def test_before_the_second_answer_of_a_host_which_starts_for_the_first_it_waits_for_longer() -> None:
    backend = Clockwork()
    with pytest.raises(LostError, match=r"\(no answer was measured yet\), phase 'p', round 1: call 0, call 1"):
        silences(watched(backend), 1e9, 2e9)
    assert backend.now == WARNINGS_AT_FIRST * 10
    backend = Clockwork()
    watchdog = watched(backend)
    silences(watchdog, START)
    with pytest.raises(LostError):
        silences(watchdog, 1e9)
    assert backend.now == START + WARNINGS_AT_FIRST * 10


def test_another_host_that_starts_later_has_as_long() -> None:
    backend, watchdog = measured(1.0)
    list(watchdog.wait([Call(backend.now + WARNINGS_AT_FIRST * 10 - 1, "host 1", host=1)], "p", 1))
    with pytest.raises(LostError, match=f"limit is {WARNINGS * 10:.0f} s"):
        list(watchdog.wait([Call(1e9, "host 1", host=1)], "p", 1))


def test_a_phases_first_evaluation_may_take_longer_than_all_updates_before() -> None:
    backend, watchdog = measured(1.0)
    watchdog.evaluation_begins("p")
    watchdog.evaluation_begins("another")
    watchdog.evaluation_ended("another")
    silences(watchdog, backend.now + WARNINGS_AT_FIRST * 10 - 1)
    watchdog.evaluation_ended("p")
    watchdog.evaluation_begins("p")
    with pytest.raises(LostError, match=rf"limit is {SILENCE_FACTOR * (WARNINGS_AT_FIRST * 10 - 1):.0f} s"):
        silences(watchdog, 1e9)


def test_an_update_that_makes_progress_may_take_any_time_and_one_that_makes_none_is_found() -> None:
    backend = Clockwork(trains_until=5e4)
    watchdog = watched(backend)
    assert silences(watchdog, 5e4) == []
    silences(watchdog, backend.now + 1)
    with pytest.raises(LostError, match=rf"no answer for {WARNINGS_AT_FIRST * 10:.0f} s"):
        list(watched(later := Clockwork(trains_until=5e4)).wait([Call(1e9, "host 0", host=0)], "p", 1))
    assert later.now == pytest.approx(5e4 + WARNINGS_AT_FIRST * 10, abs=20)


def test_of_errors_that_have_arrived_that_of_the_first_client_in_the_cohort_counts() -> None:
    def failed(client: int, at: float) -> Failure:
        failure = Failure(at)
        failure.error = ClientError(client, 0, "p", 1, "it failed")
        return failure

    together = [Call(failed(client, 5.0 + client / 100), f"client {client}", host=0) for client in (4, 2, 7)]
    backend = Clockwork()
    backend.now = 6.0
    with pytest.raises(ClientError) as raised:
        list(watched(backend).wait([*together, Call(1e9, "host 1", host=1)], "p", 1, cohort=[9, 7, 2, 4]))
    assert raised.value.client == 7
    with pytest.raises(ClientError) as raised:
        list(watched(Clockwork()).wait(together, "p", 1, cohort=[9, 7, 2, 4]))
    assert raised.value.client == 2  # the first to arrive


def test_without_restarts_it_waits_for_ever() -> None:
    assert len(silences(watched(Clockwork(), restarts=0), 1e4)) == 999


def test_a_result_may_take_any_time_while_its_process_answers_and_not_once_it_is_silent() -> None:
    backend, asked = Clockwork(), list[float]()

    def answers() -> Call:
        asked.append(backend.now)
        return Call(backend.now + 1, "the scheduler")

    watchdog = watched(backend)
    assert not list(watchdog.wait_while_answered(1000, answers, "p", 1))
    assert backend.now == 1000
    assert asked[:3] == [10, 21, 32]
    silent = watchdog.wait_while_answered(1e9, lambda: Call(1e9, "the scheduler"), "p", 3)
    assert next(silent) == Waiting("p", 3, 10.0, ("the scheduler",))
    with pytest.raises(LostError, match=r"^the scheduler does not answer for 50 s, and the limit is 50 s, phase 'p'"):
        list(silent)
    assert backend.now == 1000 + 10 + WARNINGS * 10


def test_without_restarts_a_silent_process_is_only_reported() -> None:
    silent = watched(Clockwork(), restarts=0).wait_while_answered(1e4, lambda: Call(1e4, "the scheduler"), "p", 1)
    assert len(list(silent)) == 998
