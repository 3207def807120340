"""Your own schedule: several relays side by side; their models are averaged after every round.

    python -m rayfl.scenario examples/own_schedule.toml --backend inline

A schedule is a pair: a class with the keys of its phases, and a class that submits their rounds. It passes references
from call to call, so models travel between workers and to the server directly.
"""

from __future__ import annotations

from collections.abc import Generator

from pydantic import PositiveInt

from rayfl import ScenarioError
from rayfl.schedules import (
    BasePhase,
    Call,
    Cohort,
    Event,
    PhasePlan,
    RoundIndex,
    Schedule,
    SubmittedRound,
    segments,
)


class RingsPhase(BasePhase):
    """The fields are keys of the phase. Without `eval_model`, only the algorithm's local objective is used."""

    cohort: Cohort
    rings: PositiveInt = 3


class Rings(Schedule):
    """Cuts the cohort into relays of consecutive clients, which all start from the same model."""

    config = RingsPhase
    noun = "ring"

    @classmethod
    def check_cohort(cls, plan: PhasePlan, smallest: int, largest: int) -> None:
        """Rejects cohorts that leave a ring empty, before training starts."""
        if smallest < rings_of(plan):
            raise ScenarioError(
                f"cohort: {rings_of(plan)} rings need a client each, but a round may have only {smallest}; draw more "
                "clients or use fewer rings"
            )

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        """Submits all rings at once, without waiting: it only handles references to future results."""
        cohort = [participant.client for participant in self.draw(index)]
        if not cohort:  # a privacy budget may leave fewer clients than the phase asks for, even none
            return self.idle(index)
        hosts, server, rings = len(self.backend.hosts), self.backend.server, min(rings_of(self.plan), len(cohort))
        start, ends, weights, assignments, reports = server.call("model_for", index.phase), [], [], [], []
        for ring in range(rings):
            clients = cohort[ring * len(cohort) // rings : (ring + 1) * len(cohort) // rings]
            # clients with state train where it is stored; otherwise a ring stays on one host
            at_home = segments(clients, hosts, packed=False) if self.plan.keeps_client_state else None
            model = start
            for host, segment in at_home or [(ring % hosts, clients)]:
                model, report = self.relay(host, index, segment, model)
                assignments.append((host, segment))
                reports.append(report)
            ends.append(model)
            weights.append(float(self.sizes[clients].sum()))
        adopted = Call(server.call("adopt", index, weights, *ends), "server: the mean of the rings")
        yield from ()  # a schedule that waits yields events here
        return SubmittedRound(index, assignments, reports, [adopted])


def rings_of(plan: PhasePlan) -> int:
    """Returns the key `rings` of the phase."""
    assert isinstance(plan.phase, RingsPhase)
    return plan.phase.rings
