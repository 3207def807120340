"""FedBuff as a schedule of a user's own: the server steps whenever enough answers are in, by a virtual clock.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, Algorithm 1: a client starts
from the model that is the latest then, and another takes its place once it has answered. A round is a step of the
server; an answer that began tau steps earlier is discounted by (1 + tau) ** -staleness.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from pydantic import NonNegativeFloat, PositiveInt

from rayfl.config.base_phase import EvalModel
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Ref
from rayfl.errors import ScenarioError
from rayfl.schedules import (
    BasePhase,
    Call,
    Cohort,
    Event,
    Participant,
    PhasePlan,
    RoundIndex,
    Schedule,
    ScheduleContext,
    SubmittedRound,
    longest_first,
)
from rayfl.streams import stream


class BufferedPhase(BasePhase):
    """Keys of an asynchronous phase.

    Attributes:
        cohort: Candidates of a round, in the order in which they take free places.
        concurrency: Clients that train at a time.
        buffer: Answers per step of the server.
        staleness: The exponent of the discount.
        spread: Standard deviation of the logarithm of a client's virtual seconds.
        eval_model: Which model is evaluated.
    """

    cohort: Cohort = 1.0
    concurrency: PositiveInt
    buffer: PositiveInt
    staleness: NonNegativeFloat = 0.5
    spread: NonNegativeFloat = 1.0
    eval_model: EvalModel | None = None


class Durations:
    """Everybody takes part, each for a number of virtual seconds of its own."""

    def __init__(self, seed: int, spread: float) -> None:
        self._seed, self._spread = seed, spread

    def of(self, index: RoundIndex, cohort: Sequence[int]) -> Sequence[Participant]:
        return [Participant(client, ends=self._seconds(index, client)) for client in cohort]

    def _seconds(self, index: RoundIndex, client: int) -> float:
        return float(stream(self._seed, "duration", index.phase, index.round, client).lognormal(0.0, self._spread))


class FedBuff(Schedule):
    """Updates in flight are known by when they end, whose they are and in which round they began."""

    config = BufferedPhase
    noun = "buffered phase"

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        self.phase = phase_of(self.plan)
        self.participation = Durations(self.scenario.seed, self.phase.spread)
        self._clock = 0.0
        self._in_flight: list[tuple[float, int, int]] = []
        self._began: dict[int, tuple[RoundIndex, list[int], Ref]] = {}

    @classmethod
    def check(cls, plan: PhasePlan, scenario: Scenario) -> None:
        name = plan.phase.algorithm.name
        if len(plan.asked) != 1:
            raise ScenarioError(f"algorithm: '{name}' has {len(plan.asked)} exchanges a round, and a buffer takes one")
        if plan.client_state:
            kept = ", ".join(sorted(plan.client_state))
            raise ScenarioError(f"algorithm: clients of '{name}' keep a state ({kept}), and rounds overlap in a buffer")
        if plan.phase.local.dp:
            raise ScenarioError("local.dp: no account covers updates that end in another round than they began")

    @classmethod
    def check_cohort(cls, plan: PhasePlan, smallest: int, largest: int) -> None:
        phase = phase_of(plan)
        if smallest < phase.concurrency + phase.buffer:
            raise ScenarioError(
                f"cohort: {phase.concurrency} clients at a time and a buffer of {phase.buffer} need as many candidates "
                f"together, and a round may have {smallest}"
            )

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        busy = {client for _, client, _ in self._in_flight}
        candidates = iter([candidate for candidate in self.draw(index) if candidate.client not in busy])
        started: list[int] = []
        finished: list[tuple[float, int, int]] = []
        while len(finished) < self.phase.buffer:
            while len(self._in_flight) < self.phase.concurrency:
                next_one = next(candidates)
                started.append(next_one.client)
                heapq.heappush(self._in_flight, (self._clock + next_one.ends, next_one.client, index.round))
            finished.append(heapq.heappop(self._in_flight))
            self._clock = finished[-1][0]
        server, hosts = self.backend.server, self.backend.hosts
        self._began[index.round] = index, started, server.call("begin", index, started)
        parts, discounts, reports, assignments = [], [], [], []
        for round in sorted({round for _, _, round in finished}):
            clients = sorted(client for _, client, began in finished if began == round)
            groups = [[client] for client in clients]
            for host, own in enumerate(longest_first(groups, [1] * len(groups), len(hosts))):
                if own:
                    part, report = self.answer(host, self._began[round][0], own, self._began[round][2])
                    parts.append(part)
                    discounts.append((1.0 + index.round - round) ** -self.phase.staleness)
                    reports.append(report)
                    assignments.append((host, [client for group in own for client in group]))
        scalars, _ = server.call("receive", index, discounts, *parts, returns=2)
        still = {round for _, _, round in self._in_flight}
        self._began = {round: began for round, began in self._began.items() if round in still}
        yield from ()
        return SubmittedRound(
            index,
            assignments,
            reports,
            [Call(scalars, "server: aggregation")],
            open_rounds=sorted(still),
            scalars={
                "virtual_seconds": self._clock,
                "staleness": sum(index.round - round for _, _, round in finished) / len(finished),
            },
        )

    def snapshot(self) -> dict[str, Any]:
        return {
            "clock": self._clock,
            "updates": [list(update) for update in sorted(self._in_flight)],
            "rounds": [
                [index.phase, index.round, index.round_in_phase, started] for index, started, _ in self._began.values()
            ],
        }

    def restore(self, in_flight: Mapping[str, Any]) -> None:
        self._clock = in_flight["clock"]
        self._in_flight = [(ends, client, round) for ends, client, round in in_flight["updates"]]
        for *numbers, started in in_flight["rounds"]:
            index = RoundIndex(*numbers)
            self._began[index.round] = index, started, self.backend.server.call("begin", index, started)


def phase_of(plan: PhasePlan) -> BufferedPhase:
    assert isinstance(plan.phase, BufferedPhase)
    return plan.phase
