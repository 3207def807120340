"""Asynchronous training: clients begin and answer at their own times, and the server steps as answers arrive."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rayfl.config.asynchronous import AsynchronousPhase
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import Group
from rayfl.engine.backend import Ref
from rayfl.engine.calls import Call
from rayfl.engine.schedules.schedule import Schedule, ScheduleContext, SubmittedRound
from rayfl.engine.schedules.stale_answers import check_takes_stale_answers
from rayfl.engine.updates_on_hosts import Submitted, UpdatesOnHosts
from rayfl.errors import ScenarioError
from rayfl.local.draws import typical
from rayfl.local.steps import update_steps
from rayfl.planning.arrivals import Arrivals, Update, step_times
from rayfl.planning.events import Event
from rayfl.planning.participation import Participant
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex


@dataclass(frozen=True)
class Began:
    """A round whose model some clients still train from.

    Attributes:
        index: The round.
        started: The clients that began in it.
        exchange: Reference to the exchange that the server sent them.
    """

    index: RoundIndex
    started: Sequence[int]
    exchange: Ref


class Asynchronous(Schedule):
    """Base class of asynchronous schedules; subclasses define the server's step.

    Every round ends with a step of the server. The virtual clock alone decides which answers a step uses. An update
    uses the random streams and learning rate of the round in which it began, even if its answer is used much later.
    Workers run updates ahead, in the order in which the server will need them, and need not wait for its steps.
    """

    keeps_time = True

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        self.phase = phase_of(self.plan)
        assert self.clock is not None  # `check` rejects a phase without one
        self._clock = self.clock
        self._arrivals = self._arrivals_from(self._clock.now)
        self._began: dict[int, Began] = {}
        self._local = typical(self.plan.phase.local)
        at_once = self.scenario.numerics.clients_at_once
        self._updates = UpdatesOnHosts(len(self.backend.hosts), at_once, self._steps, self._submit)

    @classmethod
    def check(cls, plan: PhasePlan, scenario: Scenario) -> None:
        """See `Schedule.check`."""
        check_takes_stale_answers(plan, scenario)

    @classmethod
    def check_cohort(cls, plan: PhasePlan, smallest: int, largest: int) -> None:
        """See `Schedule.check_cohort`."""
        phase = phase_of(plan)
        for key, number in (("concurrency", phase.concurrency), ("buffer", phase.answers_per_step)):
            if number > largest:
                raise ScenarioError(
                    f"{key}: {number} is more than the candidates of a round, of which there are at most {largest}; "
                    f"increase cohort or lower {key}"
                )

    @abstractmethod
    def step(self, index: RoundIndex, answered: Sequence[Submitted]) -> Ref:
        """Submits a step of the server.

        Args:
            index: The round.
            answered: All answers that the step uses.

        Returns:
            Reference to the scalars that the server reports.
        """

    def discount(self, index: RoundIndex, began: int) -> float:
        """Returns the staleness discount s(tau) in a round of answers whose clients began in round `began`."""
        return self.phase.staleness.discount(index.round - began)

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        """See `Schedule.submit`."""
        step = self._arrivals.step(index.round, self._context.draw(index), partial(self._update, index))
        times = step_times(self._clock, index, step, self._arrivals.clock)
        yield from ()
        if not step.taken:
            return self.timed(self.idle(index), times)
        last = step.taken[-1]
        exchange = self.backend.server.call("begin", index, step.started, (last.round, last.client))
        self._began[index.round] = Began(index, step.started, exchange)
        answered = self._updates.answers_of(step.taken)
        told = Call(self.step(index, answered), "server: aggregation")
        still = {update.round for update in self._arrivals.in_flight}
        self._began = {round: began for round, began in self._began.items() if round in still}
        self._run_ahead(index)
        staleness = [index.round - update.round for update in step.taken]
        round = SubmittedRound(
            index,
            [(each.host, each.clients) for each in answered],
            [each.report for each in answered],
            [told],
            open_rounds=sorted(still),
            scalars={"mean_staleness": sum(staleness) / len(staleness), "max_staleness": float(max(staleness))},
        )
        return self.timed(round, times)

    def snapshot(self) -> dict[str, Any]:
        """See `Schedule.snapshot`."""
        flying = sorted(self._arrivals.in_flight)
        return {
            "clock": self._arrivals.clock,
            "updates": [[update.ends, update.client, update.round, update.answers] for update in flying],
            "rounds": [
                [began.index.phase, began.index.round, began.index.round_in_phase, list(began.started)]
                for began in self._began.values()
            ],
        }

    def restore(self, in_flight: Mapping[str, Any]) -> None:
        """See `Schedule.restore`."""
        self._arrivals = self._arrivals_from(in_flight["clock"], [Update(*update) for update in in_flight["updates"]])
        for *numbers, started in in_flight["rounds"]:
            index = RoundIndex(*numbers)
            self._began[index.round] = Began(index, started, self.backend.server.call("begin", index, started))

    def _arrivals_from(self, clock: float, in_flight: Sequence[Update] = ()) -> Arrivals:
        return Arrivals(self.phase.concurrency, self.phase.answers_per_step, clock, in_flight)

    def _update(self, index: RoundIndex, client: int, at: float) -> Participant | None:
        """Returns the outcome of an update that begins in a round; None if the client is not available."""
        return self._clock.update(index, client, at) if self._clock.is_available(index, client, at) else None

    def _run_ahead(self, index: RoundIndex) -> None:
        needed = self.phase.answers_per_step
        to_come = (self.plan.phase.rounds - index.round_in_phase) * needed
        if self.backend.rounds_ahead:
            self._updates.run_ahead(self._arrivals.in_flight, needed, to_come)

    def _steps(self, client: int) -> int:
        (size,) = self.plan.algorithm.training_sizes(self.sizes[[client]])
        return update_steps(self._local, int(size))

    def _submit(self, round: int, host: int, groups: Sequence[Group]) -> Submitted:
        began = self._began[round]
        part, report = self.answer(host, began.index, groups, began.exchange)
        return Submitted(round, host, [client for group in groups for client in group], part, report)


def phase_of(plan: PhasePlan) -> AsynchronousPhase:
    """Returns the keys of an asynchronous phase."""
    assert isinstance(plan.phase, AsynchronousPhase)
    return plan.phase
