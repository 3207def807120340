"""The epsilon that a run has spent: its example-level (`local.dp`) and client-level (`phases.N.dp`) guarantee.

Both count rounds that the ledger charges but the run does not use: repeated after a stop, or lost at its end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rayfl.engine.events import BudgetSpent, Evaluated, Event, RoundDone
from rayfl.engine.plain_events import plain_round, plain_spending, round_from, spending_from
from rayfl.engine.plan.client_statement import ClientAccount, client_statement
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.sample_privacy import dp_of
from rayfl.privacy.release_ledger import LEDGER_FILE, ChargedRound
from rayfl.privacy.samples.accounting import ClientEpsilons, accountant_of
from rayfl.privacy.samples.statement import NOT_COVERED, json_number, sampling, statement
from rayfl.runs.records import Records

DISCARDED = (
    "rounds that were charged before they began but do not contribute to the model: they were repeated after a stop, "
    "or still running at the end; epsilon counts each as another release to the same adversary"
)


def described(rounds: Sequence[ChargedRound]) -> dict[str, Any]:
    """The entry in privacy.json; empty without such rounds."""
    if not rounds:
        return {}
    numbers = [charged.round for charged in rounds]
    return {
        "charged_but_discarded": {"what": DISCARDED, "number": len(numbers), "rounds": numbers, "ledger": LEDGER_FILE}
    }


def beside(rounds: Sequence[ChargedRound]) -> str:
    """The text to add to a line that names the last round."""
    if not rounds:
        return ""
    more = "1 discarded round" if len(rounds) == 1 else f"{len(rounds)} discarded rounds"
    return f", including {more} (see {LEDGER_FILE})"


CLIENT_EPSILON = "client_epsilon"


class ClientPrivacy:
    """Tracks the epsilon of a run with client-level DP (`phases.N.dp`).

    Epsilon is a function of the scenario, the round and the charged rounds that are not part of the run, so a run that
    resumes from a snapshot needs no earlier events.

    Args:
        run_plan: The run's plan.
    """

    def __init__(self, run_plan: RunPlan) -> None:
        assert run_plan.accounting is not None
        self._plan, self._delta = run_plan, run_plan.accounting.delta
        self._account = ClientAccount(run_plan)
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
        return replace(event, scores={**event.scores, CLIENT_EPSILON: self._account.epsilon(event.round)})

    def state(self) -> dict[str, Any]:
        return {"round": self._round}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round = state["round"]

    def charge_discarded(self, rounds: Sequence[ChargedRound]) -> None:
        self._discarded = rounds
        self._account = ClientAccount(self._plan, rounds)

    def end_early(self, reason: str) -> None:
        """Records why the run ended before its last round."""
        self._ended = reason

    def summary(self) -> str:
        """One line: epsilon, its neighbouring relation, and delta."""
        last, hidden, delta = self._round, self._account.relation, f"delta {self._delta:.4g}"
        if names := self._account.uncovered(last):
            return f"privacy: client-level, {delta}; no guarantee for the run: {', '.join(names)} without dp"
        epsilon = json_number(self._account.epsilon(last))
        value = epsilon if isinstance(epsilon, str) else f"{epsilon:.4g}"
        return f"privacy: client-level epsilon {value} ({hidden}), {delta}, after round {last}{beside(self._discarded)}"

    def content(self, model_round: int | None = None) -> dict[str, Any]:
        """The table `clients` of privacy.json; see `SamplePrivacy.content`."""
        last = self._round if self._discarded else max(self._round, model_round or 0)
        statement = client_statement(self._plan, last, self._discarded)
        return {**statement, "ended_early": self._ended or None, **described(self._discarded)}


BINS = 20
"""Bins of the histogram of the clients' epsilons."""

CLIENTS_NAMED = 1000
"""Up to this many clients that were left out are listed; otherwise only their number is given."""


class SamplePrivacy:
    """Tracks the epsilon of a run with example-level DP (`local.dp`).

    Args:
        run_plan: The plan of a run with `local.dp` on clients' samples in at least one phase.
    """

    def __init__(self, run_plan: RunPlan) -> None:
        self._spending, self._started = run_plan.spending, run_plan.scenario.start is not None
        self._plans = [plan for plan in run_plan.phases if plan.phase.name in run_plan.spending.epsilons]
        self._phases = [dp_of(plan) for plan in self._plans]
        self._accountant = accountant_of(self._phases[0])
        self._epsilons = ClientEpsilons(self._accountant, max(plan.num_clients for plan in run_plan.phases))
        self._rounds: deque[RoundDone] = deque()
        self._round, self._ended = 0, ""
        self._phase, self._accountant_of_clients = "", ""
        self._left_out: set[int] = set()
        self._discarded: Sequence[ChargedRound] = ()

    @property
    def covered(self) -> bool:
        """Whether the accountant covers the sampling of batches."""
        return all(dp.sampling == "poisson" for dp in self._phases)

    def state(self) -> dict[str, Any]:
        return {
            "phase": self._phase,
            "round": self._round,
            "ended": self._ended,
            "left_out": sorted(self._left_out),
            "spent": plain_spending(self._epsilons.spent()),
            "not_booked": [plain_round(replace(done, scalars={}, client_scalars=())) for done in self._rounds],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._phase, self._round, self._ended = state["phase"], state["round"], state["ended"]
        self._left_out = set(state["left_out"])
        self._epsilons.restore(spending_from(state["spent"]))
        self._rounds = deque(round_from(done) for done in state["not_booked"])

    def add(self, event: Event) -> Event:
        """Takes in one event; an evaluation gets the score `epsilon`, the largest of any client after its round."""
        match event:
            case RoundDone():
                self._rounds.append(event)
            case BudgetSpent():
                self._ended = event.reason
                self._left_out.update(event.left_out)
            case Evaluated():
                self._book(event.round)
                if self.covered:
                    return replace(event, scores={**event.scores, "epsilon": self._epsilons.maximum()})
        return event

    def charge_discarded(self, rounds: Sequence[ChargedRound]) -> None:
        """Counts charged rounds that the run does not use, replacing those counted before."""
        self._discarded = rounds
        self._epsilons.charge_discarded(charged.spent for charged in rounds)

    def end_early(self, reason: str) -> None:
        """Records why the run ended before its last round."""
        self._ended = reason

    def finish(self, records: Records) -> None:
        """Counts the last rounds, and adds the epsilon of every client to the records, which are not closed yet.

        Raises:
            ResourceError: They cannot be written.
        """
        self._book(math.inf)
        if self.covered and self._round:
            epsilons, exact = self._epsilons.each()
            records.add_epsilons(self._phase, self._round, epsilons)
            self._accountant_of_clients = self._accountant.name if exact else "rdp"

    def summary(self) -> str:
        """One line: the largest and the median epsilon, and delta."""
        delta = f"delta {self._phases[0].delta:g}"
        if not self.covered:
            return f"privacy: example-level, {delta}; {sampling(self._phases)}"
        largest, median = self._epsilons.maximum(), self._epsilons.median()
        after = f"after round {self._round}{beside(self._discarded)}"
        return f"privacy: example-level epsilon {largest:.4g} (median {median:.4g}), {delta}, {after}"

    def content(self, model_round: int | None = None) -> dict[str, Any]:
        """The table `samples` of privacy.json.

        Args:
            model_round: The round of the saved model, if it may be later than the last event.
        """
        content: dict[str, Any] = {
            **statement(self._phases, self._started),
            "rounds": self._round,
            "phases": [_described_phase(plan, self._spending.epsilons[plan.phase.name]) for plan in self._plans],
            "epsilon": self._described_epsilons() if self.covered else NOT_COVERED,
            "left_out": _named_clients(sorted(self._left_out)),
            "ended_early": self._ended or None,
            "notes": list(self._spending.notes),
            **described(self._discarded),
        }
        if model_round is not None and model_round > self._round and not self._discarded:
            content["notes"].append(
                f"the run ended before it reported the privacy spent in rounds {self._round + 1} to {model_round}: the "
                f"saved model is from round {model_round}, and its epsilon is larger than this"
            )
        return content

    def _book(self, last: float) -> None:
        while self._rounds and self._rounds[0].round <= last:
            done = self._rounds.popleft()
            self._epsilons.book(done.spent)
            self._left_out.update(done.left_out)
            self._phase, self._round = done.phase, done.round

    def _described_epsilons(self) -> dict[str, Any]:
        bounds = self._epsilons.bounds()
        finite = bounds[np.isfinite(bounds)]
        counts, edges = np.histogram(finite, bins=BINS, range=(0, float(finite.max(initial=0)) or 1))
        record: dict[str, Any] = {
            "maximum": json_number(self._epsilons.maximum()),
            "median": json_number(self._epsilons.median()),
            "maximum_by_rdp": json_number(float(bounds.max())),
            "clients": len(bounds),
            "histogram_by_rdp": {
                "edges": [float(edge) for edge in edges],
                "clients": [int(count) for count in counts],
                "infinite": int(len(bounds) - len(finite)),
            },
        }
        if self._accountant_of_clients:
            record["accountant_of_clients_parquet"] = self._accountant_of_clients
        server = self._epsilons.server()
        if server is not None and self._discarded:
            return record | {
                "server_samples": "unknown: the ledger, which counts repeated rounds, covers clients' samples only"
            }
        return record if server is None else record | {"server_samples": json_number(server)}


def _described_phase(plan: PhasePlan, planned: float | None) -> dict[str, Any]:
    noise, dp = plan.noise, dp_of(plan)
    assert noise is not None
    record: dict[str, Any] = {"name": plan.phase.name, "max_grad_norm": json_number(dp.max_grad_norm)}
    if isinstance(noise, np.ndarray):
        record |= {"noise_multiplier": {"least": float(noise.min()), "largest": float(noise.max())}}
        record |= {"noise_multiplier_of_client": [float(value) for value in noise]}
    else:
        record |= {"noise_multiplier": float(noise)}
    limits = {"target_epsilon": dp.target_epsilon, "max_epsilon": dp.max_epsilon}
    record |= {name: value for name, value in limits.items() if value is not None}
    if dp.max_epsilon is not None:
        record["when_spent"] = dp.when_spent
    planned_epsilon = NOT_COVERED if planned is None else json_number(planned)
    return record | {"secure": dp.secure, "sampling": dp.sampling, "planned_epsilon": planned_epsilon}


def _named_clients(clients: Sequence[int]) -> dict[str, Any]:
    named = {"number": len(clients)}
    return named | {"clients": list(clients)} if len(clients) <= CLIENTS_NAMED else named
