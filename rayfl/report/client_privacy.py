"""The client-level guarantee of a run with `phases.N.dp`, and the epsilon spent so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rayfl.engine.job import Job
from rayfl.planning.events import BudgetSpent, Evaluated, Event, RoundDone
from rayfl.privacy.clients.statement import ClientAccount, client_statement
from rayfl.privacy.json_number import json_number
from rayfl.privacy.release_ledger import ChargedRound
from rayfl.report.discarded_rounds import beside, described

COLUMN = "client_epsilon"


class ClientPrivacy:
    """Tracks the epsilon of a run with client-level DP (`phases.N.dp`).

    Epsilon is a function of the scenario, the round and the charged rounds that are not part of the run, so a run that
    resumes from a snapshot needs no earlier events.

    Args:
        job: The run.
    """

    def __init__(self, job: Job) -> None:
        assert job.client_plan is not None
        self._parts = job.scenario, job.client_plan, job.result.population.sizes
        self._account = ClientAccount(*self._parts)
        self._round, self._ended = 0, ""
        self._discarded: Sequence[ChargedRound] = ()

    def add(self, event: Event) -> Event:
        """Takes in one event and returns it; an evaluation gets the score `client_epsilon`."""
        if isinstance(event, RoundDone):
            self._round = event.round
        if isinstance(event, BudgetSpent) and event.ends_run:
            self._ended = event.reason
        if not isinstance(event, Evaluated):
            return event
        return replace(event, scores={**event.scores, COLUMN: self._account.epsilon(event.round)})

    def state(self) -> dict[str, Any]:
        """See `EventConsumer`."""
        return {"round": self._round}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `EventConsumer`."""
        self._round = state["round"]

    def charge_discarded(self, rounds: Sequence[ChargedRound]) -> None:
        """See `SamplePrivacy.charge_discarded`."""
        self._discarded = rounds
        self._account = ClientAccount(*self._parts, rounds)

    def end_early(self, reason: str) -> None:
        """Records why the run ended before its last round."""
        self._ended = reason

    def summary(self) -> str:
        """One line: epsilon, its neighbouring relation, and delta."""
        plan, last = self._parts[1], self._round
        hidden, delta = self._account.relation, f"delta {plan.delta:.4g}"
        if names := self._account.uncovered(last):
            return f"privacy: client-level, {delta}; no guarantee for the run: {', '.join(names)} without dp"
        epsilon = json_number(self._account.epsilon(last))
        said = epsilon if isinstance(epsilon, str) else f"{epsilon:.4g}"
        return f"privacy: client-level epsilon {said} ({hidden}), {delta}, after round {last}{beside(self._discarded)}"

    def content(self, model_round: int | None = None) -> dict[str, Any]:
        """The table `clients` of privacy.json; see `SamplePrivacy.content`."""
        last = self._round if self._discarded else max(self._round, model_round or 0)
        statement = client_statement(*self._parts, last, self._discarded)
        return {**statement, "ended_early": self._ended or None, **described(self._discarded)}
