"""Adds what a run has spent of its clients' privacy to every evaluated round, as the column `client_epsilon`."""

from __future__ import annotations

from dataclasses import replace

from rayfl.engine.events import Evaluated, Event
from rayfl.engine.job import Job
from rayfl.privacy.client_statement import ClientAccount

COLUMN = "client_epsilon"


class ClientEpsilon:
    """Follows a run whose phases may hide clients (`phases.N.dp`).

    The account is a function of the scenario and of the round, so that a run that goes on from a snapshot needs none of
    what came before.

    Args:
        job: What runs.
    """

    def __init__(self, job: Job) -> None:
        self._account = (
            ClientAccount(job.scenario, job.client_plan, job.result.population.sizes) if job.client_plan else None
        )

    def add_to(self, event: Event) -> Event:
        """The same event; that of an evaluation with epsilon beside its scores."""
        if self._account is None or not isinstance(event, Evaluated):
            return event
        return replace(event, scores={**event.scores, COLUMN: self._account.epsilon(event.round)})
