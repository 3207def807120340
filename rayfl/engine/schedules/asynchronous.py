"""Asynchronous training: clients begin and answer at their own times, and the server steps as answers arrive.

FedBuff: the server steps by the discounted mean change of a buffer of answers. Nguyen et al., "Federated Learning with
Buffered Asynchronous Aggregation", AISTATS 2022, Algorithm 1.

FedAsync: the server mixes every client's model into its own as soon as it arrives. Xie, Koyejo and Gupta,
"Asynchronous Federated Optimization", 2019, Algorithm 1.

Algorithms and options that do not support answers to older models than the server's current one are rejected.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rayfl.algorithms.fedavg import FedAvg
from rayfl.config.phase import AsynchronousPhase, BufferedPhase, FullyAsynchronousPhase
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import Group, Submitted, UpdatesOnHosts
from rayfl.engine.backend import Call, Ref
from rayfl.engine.events import Event
from rayfl.engine.plan.participation import Participant
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.round_times import Arrivals, Update, step_times
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.schedules.schedule import Schedule, ScheduleContext, SubmittedRound
from rayfl.errors import ScenarioError
from rayfl.local.steps import typical, update_steps


def check_takes_stale_answers(plan: PhasePlan, scenario: Scenario) -> None:
    """Checks that a phase can be asynchronous.

    Raises:
        ScenarioError: It cannot; the message begins with a key of the phase.
    """
    if scenario.participation is None or not scenario.participation.has_clock:
        raise ScenarioError(
            f"schedule: '{plan.phase.schedule}' needs a virtual clock to order the answers; give clients speeds in "
            "[participation] (such as steps_per_s), or use schedule = 'parallel'"
        )
    _check_algorithm(plan)
    if plan.phase.local.dp:
        raise ScenarioError(
            "local.dp: privacy is accounted in the round in which an update begins, but here updates end in later "
            "rounds; leave it out, or use a parallel phase"
        )
    if plan.evaluated.reads_trained:
        raise ScenarioError(
            f"eval_model: '{plan.evaluated.rule}' averages the clients' models, but these began from different models; "
            "use 'global', 'average' or 'ema'"
        )


def _check_algorithm(plan: PhasePlan) -> None:
    name, algorithm = plan.phase.algorithm.name, plan.algorithm
    if plan.asked != ("cohort",):
        raise ScenarioError(
            f"algorithm: '{name}' has {len(plan.asked)} exchanges per round, but asynchronous clients can have only "
            "one; use an algorithm with one, such as 'fedavg', or a parallel phase"
        )
    if plan.client_state:
        names = ", ".join(sorted(plan.client_state))
        raise ScenarioError(
            f"algorithm: clients of '{name}' keep state ({names}), which updates that overlap would not find as the "
            "previous round left it; use an algorithm without client state, or a parallel phase"
        )
    if algorithm.no_stale_answers:
        raise ScenarioError(f"algorithm: '{name}' cannot be asynchronous: {algorithm.no_stale_answers}")
    if isinstance(algorithm, FedAvg) and algorithm.aggregation.each:
        raise ScenarioError(
            f"algorithm.aggregation: '{algorithm.aggregation.name}' compares updates, but these began from different "
            "models; use 'mean'"
        )


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
    begins_together = False

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
        check_takes_stale_answers(plan, scenario)

    @classmethod
    def check_cohort(cls, plan: PhasePlan, smallest: int, largest: int) -> None:
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
        self._updates.spread_over(len(self.backend.hosts))
        candidates = self._context.draw(index)
        step = self._arrivals.step(index.round, candidates, partial(self._update, index), self._clock.first_available)
        times = step_times(self._clock, index, step, self._arrivals.clock)
        yield from ()
        if not step.taken:
            return self.timed(self.idle(index), times)
        last = step.taken[-1]
        exchange = self.backend.server.call("begin", index, step.started, (last.round, last.client))
        self._began[index.round] = Began(index, step.started, exchange)
        answered = self._updates.answers_of(step.taken)
        aggregation = Call(self.step(index, answered), "server: aggregation")
        still = {update.round for update in self._arrivals.in_flight}
        self._began = {round: began for round, began in self._began.items() if round in still}
        self._run_ahead(index)
        staleness = [index.round - update.round for update in step.taken]
        round = SubmittedRound(
            index,
            [(each.host, each.clients) for each in answered],
            [each.report for each in answered],
            [aggregation],
            open_rounds=sorted(still),
            scalars={"mean_staleness": sum(staleness) / len(staleness), "max_staleness": float(max(staleness))},
        )
        return self.timed(round, times)

    def snapshot(self) -> dict[str, Any]:
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


class Buffered(Asynchronous):
    """w <- w + step(sum_i p_i s(tau_i) delta_i), delta_i from the model that client i began with, and sum_i p_i = 1."""

    config = BufferedPhase
    noun = "buffered phase"

    def step(self, index: RoundIndex, answered: Sequence[Submitted]) -> Ref:
        discounts = [self.discount(index, each.round) for each in answered]
        scalars, _ = self.backend.server.call("receive", index, discounts, *[each.part for each in answered], returns=2)
        return scalars


class FullyAsynchronous(Asynchronous):
    """w <- (1 - a) w + a w_i with a = alpha s(tau): a step by a (w_i - w), which the server optimizer may change."""

    config = FullyAsynchronousPhase
    noun = "asynchronous phase"

    @classmethod
    def check(cls, plan: PhasePlan, scenario: Scenario) -> None:
        super().check(plan, scenario)
        if "delta" not in plan.sent_vectors:
            raise ScenarioError(
                f"algorithm: clients of '{plan.phase.algorithm.name}' do not answer with a model that the server could "
                "mix with its own; use another algorithm, such as 'fedavg', or schedule = 'buffered'"
            )

    def step(self, index: RoundIndex, answered: Sequence[Submitted]) -> Ref:
        (each,) = answered
        assert isinstance(self.phase, FullyAsynchronousPhase)
        share = self.phase.mixing * self.discount(index, each.round)
        return self.backend.server.call("mix", index, each.round, share, each.part)
