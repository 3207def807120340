"""Your own schedule: several relays side by side, whose models are averaged after every round.

    python -m rayfl.scenario examples/own_schedule.toml --backend inline

A schedule is a pair: the keys of its phases, and a class that submits their rounds. What it passes from call to call
are references, so the models themselves go from host to host and to the server without it.
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
    """Its fields are keys of the phase. It has no `eval_model`, so only the algorithm's local objective is used."""

    cohort: Cohort
    rings: PositiveInt = 3


class Rings(Schedule):
    """The cohort is cut into relays of consecutive clients, which all start from the same model."""

    config = RingsPhase
    noun = "ring"

    @classmethod
    def check_cohort(cls, plan: PhasePlan, smallest: int, largest: int) -> None:
        """Refuses cohorts that leave a ring empty, before anything starts."""
        if smallest < rings_of(plan):
            raise ScenarioError(
                f"cohort: {rings_of(plan)} rings need a client each, and a round may have {smallest}; draw more, or "
                "use fewer rings"
            )

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        """Submits all rings at once; nothing waits here, since references stand for what is yet to come."""
        cohort = [participant.client for participant in self.draw(index)]
        if not cohort:  # a privacy budget may leave fewer than the phase asks for, down to nobody
            return self.idle(index)
        hosts, server, rings = len(self.backend.hosts), self.backend.server, min(rings_of(self.plan), len(cohort))
        start, ends, weights, assignments, reports = server.call("model_for", index.phase), [], [], [], []
        for ring in range(rings):
            clients = cohort[ring * len(cohort) // rings : (ring + 1) * len(cohort) // rings]
            # clients that keep a state train where it is, others of a ring on one host
            at_home = segments(clients, hosts, packed=False) if self.plan.keeps_client_state else None
            model = start
            for host, segment in at_home or [(ring % hosts, clients)]:
                model, report = self.relay(host, index, segment, model)
                assignments.append((host, segment))
                reports.append(report)
            ends.append(model)
            weights.append(float(self.sizes[clients].sum()))
        adopted = Call(server.call("adopt", index, weights, *ends), "server: the mean of the rings")
        yield from ()  # events, where a schedule has to wait
        return SubmittedRound(index, assignments, reports, [adopted])


def rings_of(plan: PhasePlan) -> int:
    """The phase's key."""
    assert isinstance(plan.phase, RingsPhase)
    return plan.phase.rings
