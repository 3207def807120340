"""What every schedule is given, and what a user's own is told when it is wrong."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest

from rayfl.config.base_phase import EvalModel
from rayfl.config.phase import ParallelPhase, RelayPhase
from rayfl.engine.events import RoundDone
from rayfl.engine.schedules.parallel import Parallel
from rayfl.engine.schedules.relay import Relay
from rayfl.errors import RayflError, ScenarioError
from rayfl.schedules import BasePhase, Cohort, Event, Participant, RoundIndex, Schedule, SubmittedRound
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import FEDERATED, PRETRAIN, cast, prepared, run_on_hosts, snapshot_of, without_clock

HERE = __name__


class EvenPhase(ParallelPhase):
    schedule: str  # type: ignore[assignment]


class EvenRelayPhase(RelayPhase):
    pass


class Even:
    """Clients of odd numbers drop out."""

    def of(self, index: RoundIndex, cohort: Sequence[int]) -> Sequence[Participant]:
        return [Participant(client) for client in cohort if client % 2 == 0]


class EvenParallel(Parallel):
    config = EvenPhase
    participation = Even()


class EvenRelay(Relay):
    config = EvenRelayPhase
    participation = Even()


@pytest.mark.parametrize(("plain", "own"), [(FEDERATED, "EvenParallel"), (PRETRAIN, "EvenRelay")])
def test_only_participants_train(plain: dict[str, Any], own: str) -> None:
    whole = [[0, 3, 2, 5], [1, 6, 4, 7]]
    even = [[client for client in cohort if client % 2 == 0] for cohort in whole]
    drop_out = prepared(phases=[plain | {"schedule": f"{HERE}:{own}", "cohort": {"explicit": whole}}])
    chosen = prepared(phases=[plain | {"cohort": {"explicit": even}}])
    model, events = run_on_hosts(drop_out, 2)
    expected, told = run_on_hosts(chosen, 1)
    assert np.array_equal(model, expected)
    assert repr(without_clock(events)) == repr(without_clock(told))


class OwnPhase(BasePhase):
    cohort: Cohort
    eval_model: EvalModel | None = None


class Raising(Schedule):
    config = OwnPhase
    noun = "phase"

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        raise LookupError("nothing to submit")


class Checking(Raising):
    @classmethod
    def check(cls, plan: Any, scenario: Any) -> None:
        raise ScenarioError("rounds: a prime number")


class Unfinished(Schedule):
    config = OwnPhase
    noun = "phase"


class Carrying(Parallel):
    """Draws in its first round alone, and has in flight what JSON cannot hold."""

    config = OwnPhase
    drawn: Sequence[Participant] = ()

    def draw(self, index: RoundIndex) -> Sequence[Participant]:
        self.drawn = self.drawn or super().draw(index)
        return self.drawn

    def snapshot(self) -> dict[str, Any]:
        return {"model": np.zeros(3)}


def job(schedule: str) -> Any:
    return prepared(phases=[FEDERATED | {"schedule": f"{HERE}:{schedule}"}])


def test_an_exception_of_a_users_schedule_is_reported_as_theirs() -> None:
    with pytest.raises(RayflError, match=r"schedule 'Raising': submit\(\) raised LookupError: nothing to submit\n"):
        run_on_hosts(job("Raising"), 1)


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("Checking", r"phases.federated.rounds: a prime number"),
        (
            "Unfinished",
            r"phases.federated.schedule: '.*:Unfinished' must define its base class's abstract methods",
        ),
        ("Even", r"phases.federated: schedule: '.*:Even' does not declare its keys; set its `config` to .*BasePhase"),
        ("Nothing", r"phases.federated: schedule: module '.*' has no 'Nothing'"),
    ],
)
def test_a_schedule_is_checked_before_anything_starts(schedule: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        job(schedule)


def test_a_schedule_may_draw_once_and_must_have_plain_data_in_flight() -> None:
    given = job("Carrying")
    scheduler, _ = cast(given, 2)
    done = [event for event in scheduler.run() if isinstance(event, RoundDone)]
    assert [event.client_updates for event in done] == [5, 5, 5]
    with pytest.raises(RayflError, match=r"snapshot\(\) must return plain data: option 'model' must be text"):
        snapshot_of(scheduler, MemoryStore())
