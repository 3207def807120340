"""Relay rounds: one chain of references through the cohort; no model passes through the scheduler."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import segments
from rayfl.engine.backend import LONGEST_CHAIN, Backend, Ref
from rayfl.engine.calls import Call, client_names, wait_for
from rayfl.engine.schedules.schedule import Schedule, SubmittedRound
from rayfl.planning.events import Event
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex


class Relay(Schedule):
    """Each client starts from what the previous one produced; consecutive clients on one host are one call."""

    def __init__(self, plan: PhasePlan, scenario: Scenario, backend: Backend, sizes: np.ndarray) -> None:
        super().__init__(plan, scenario, backend, sizes)
        self._packed = scenario.resources.relay == "packed" and not plan.keeps_client_state
        self._model: Ref = backend.server.call("model_for", plan.number)
        self._chain: list[Call] = []

    def waits_for(self, cohort: Sequence[int]) -> bool:
        """See `Schedule.waits_for`."""
        return len(self._chain) + len(segments(cohort, len(self.backend.hosts), self._packed)) > LONGEST_CHAIN

    def submit(self, index: RoundIndex, cohort: Sequence[int]) -> Generator[Event, None, SubmittedRound]:
        """See `Schedule.submit`."""
        hosts, reports = self.backend.hosts, []
        assignments = segments(cohort, len(hosts), self._packed)
        for host, clients in assignments:
            if len(self._chain) == LONGEST_CHAIN:
                yield from self._break_chain(index)
            self._model, report = hosts[host].call("relay", index, clients, self._model, returns=2)
            reports.append(Call(report, f"host {host}: {self.names(clients)}"))
            self._chain.append(reports[-1])
        adopted = Call(self.backend.server.call("adopt", index, self._model), "server: the relay's model")
        idle = range(1, len(hosts)) if self._packed and len(hosts) > 1 else range(len(hosts))
        return SubmittedRound(index, assignments, reports, self._model, idle, [adopted])

    def names(self, clients: Sequence[int]) -> str:
        """Who trains, for the watchdog."""
        return client_names(clients)

    def _break_chain(self, index: RoundIndex) -> Generator[Event, None, None]:
        """Waits for the model at the chain's end, and goes on from a copy without history."""
        yield from wait_for(
            self.backend, self._chain[-1:], self.scenario.resources.watchdog_s, self.plan.phase.name, index.round
        )
        self._model, self._chain = self.backend.detached(self._model), []
