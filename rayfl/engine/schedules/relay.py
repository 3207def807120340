"""Relay rounds (sequential training): one chain of references through the cohort, past the scheduler.

With central training: pooled samples on one worker, with the same training code as for clients.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import ClassVar

from rayfl.config.base_phase import BasePhase
from rayfl.config.phase import CentralPhase, RelayPhase
from rayfl.engine.assignment import segments
from rayfl.engine.backend import LONGEST_CHAIN, Call, Ref
from rayfl.engine.events import Event
from rayfl.engine.plan.round_times import relay_round
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.schedules.schedule import Schedule, ScheduleContext, SubmittedRound


class Relay(Schedule):
    """Each client starts from the previous client's model; consecutive clients on one worker are a single call."""

    config: ClassVar[type[BasePhase]] = RelayPhase
    noun = "relay"
    keeps_time = True
    begins_together = False

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        self._packed = self.scenario.resources.relay == "packed" and not self.plan.keeps_client_state
        self._model: Ref = self.backend.server.call("model_for", self.plan.number)
        self._chain: list[Call] = []

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        participants = self.draw(index)
        times = relay_round(self.clock, index, participants) if self.clock else None
        cohort = [participant.client for participant in participants] if times is None else times.counted
        hosts, reports = len(self.backend.hosts), []
        assignments = segments(cohort, hosts, self._packed)
        for host, clients in assignments:
            if len(self._chain) == LONGEST_CHAIN:
                yield from self._break_chain(index)
            self._model, report = self.relay(host, index, clients, self._model)
            reports.append(report)
            self._chain.append(report)
        adopted = Call(self.backend.server.call("adopt", index, [1.0], self._model), "server: the relay's model")
        idle = range(1, hosts) if self._packed and hosts > 1 else range(hosts)
        return self.timed(SubmittedRound(index, assignments, reports, [adopted], self._model, idle), times)

    def _break_chain(self, index: RoundIndex) -> Generator[Event, None, None]:
        """Waits for the model at the chain's end, and continues from it without lineage."""
        yield from self.wait(self._chain[-1:], index)
        self._model, self._chain = self.backend.detached(self._model), []


class Central(Relay):
    """A relay with one member, which holds the pooled samples."""

    config = CentralPhase
    noun = "central phase"

    def names(self, clients: Sequence[int]) -> str:
        return "central training"
