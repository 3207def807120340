"""The client-level privacy of a run in words and numbers, for its records and for the reader.

Also how long it may continue within `phases.N.dp.target_epsilon` after rounds that the plan did not include.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.client_ledger import (
    ClientLedger,
    Relation,
    knows_participants,
    relation_of,
    release_of,
    sampling_of,
)
from rayfl.engine.plan.cohort import expected_cohort_size
from rayfl.engine.plan.privacy_checks import largest_delta
from rayfl.privacy.clients.accounting import Release, accountants_of, epsilon_of
from rayfl.privacy.clients.mechanism import ClientMechanism, ClientPlan, lattice_of
from rayfl.privacy.composition import history
from rayfl.privacy.release_ledger import ChargedRound
from rayfl.privacy.samples.statement import AT_INTEGERS, ROUNDED, json_number

PROJECTED = (10_000, 1_000_000)
"""Numbers of clients for which epsilon is projected."""

SAMPLINGS = {
    "poisson": "each client with the same probability, independently of the others (Poisson)",
    "without_replacement": "a fixed number of clients, drawn without replacement",
    "none": "assumed to be known: no amplification",
}

SIMULATED = [
    "anyone who knows the seed of the scenario, from which the noise can be computed",
    ROUNDED,
]

ADVERSARIES = {
    "central": "sees only the model after each round, neither the cohort nor any single answer; the server is trusted",
    "local": "sees every message and the cohort of every round",
}


class ClientAccount:
    """The account of a run's clients.

    Args:
        scenario: The scenario.
        plan: How it hides clients.
        sizes: int64 [clients], the number of training samples of each client.
        discarded: Rounds that were charged in addition to those of the run; they count for any round.
    """

    def __init__(
        self, scenario: Scenario, plan: ClientPlan, sizes: np.ndarray, discarded: Sequence[ChargedRound] = ()
    ) -> None:
        self._scenario, self._plan, self._num_clients = scenario, plan, len(sizes)
        self._ledger = ClientLedger(scenario, plan.noise, sizes, discarded)
        self._discarded = Counter(charged.phase for charged in discarded)

    @property
    def relation(self) -> Relation:
        """How neighbouring sets of clients differ."""
        return relation_of(next(phase for phase in self._scenario.phases if phase.settings.dp))

    def epsilon(self, round: int) -> float:
        """Returns epsilon after this round of the scenario; infinite once a phase without `dp` used clients' data."""
        return math.inf if self.uncovered(round) else self.epsilon_of_covered(round)

    def epsilon_of_covered(self, round: int) -> float:
        """The same for phases with `dp` only."""
        return epsilon_of(self._ledger.spent(round), self._plan.delta, self._plan.accountant, self._plan.secure)

    def uncovered(self, round: int) -> list[str]:
        """Returns the names of the phases up to a round that use clients' data without `dp`."""
        found, first = [], 1
        phases = zip(self._scenario.phases, self._plan.mechanisms, strict=True)
        for number, (phase, mechanism) in enumerate(phases):
            at_server, begun = phase.pool == "server", first <= round or self._discarded[number]
            if mechanism is None and not at_server and phase.rounds and begun:
                found.append(phase.name)
            first += phase.rounds
        return found

    def projected(self, round: int, num_clients: int) -> float | None:
        """Returns epsilon for another number of clients, with the same noise on cohorts of the same size.

        None if cohorts are not sampled. Delta is the largest value allowed for that number of clients.
        """
        spent: Counter[Release] = Counter()
        first = 1
        for number, (phase, noise) in enumerate(zip(self._scenario.phases, self._plan.noise, strict=True)):
            rounds, first = max(0, min(phase.rounds, round - first + 1)), first + phase.rounds
            rounds += self._discarded[number]
            if noise is None or not rounds:
                continue
            rate = expected_cohort_size(phase, self._num_clients) / num_clients
            if knows_participants(phase) or rate >= 1:
                return None
            poisson = relation_of(phase) == "one client more or less"
            multiplier = release_of(phase, noise, self._num_clients).noise_multiplier
            spent[Release(multiplier, "poisson" if poisson else "without_replacement", rate)] += rounds
        accountant = accountants_of({release.sampling for release in spent})[0] if spent else "exact"
        accountant = "rdp" if self._plan.accountant == "rdp" else accountant
        return epsilon_of(history(spent), largest_delta(num_clients), accountant, self._plan.secure)


def client_statement(
    scenario: Scenario, plan: ClientPlan, sizes: np.ndarray, round: int, discarded: Sequence[ChargedRound] = ()
) -> dict[str, Any]:
    """Returns the client-level privacy of a run after a round, as plain data.

    Args:
        scenario: The scenario.
        plan: How it hides clients.
        sizes: int64 [clients], the number of training samples of each client.
        round: The last committed round, counted over the scenario.
        discarded: See `ClientAccount`.
    """
    account = ClientAccount(scenario, plan, sizes, discarded)
    private = [
        (phase, mechanism) for phase, mechanism in zip(scenario.phases, plan.mechanisms, strict=True) if mechanism
    ]
    samples = any(phase.local.dp for phase in scenario.phases)
    projections = {clients: account.projected(round, clients) for clients in PROJECTED if clients > len(sizes)}
    return {
        "unit": "client: all samples of one client",
        "relation": account.relation,
        "public": _public(scenario, plan),
        "composition": {
            "prv": "numerical composition of privacy loss (Gopi et al., NeurIPS 2021)",
            "rdp": "Rényi differential privacy; without replacement by Wang, Balle and Kasiviswanathan (AISTATS 2019)",
            "exact": "Gaussian mechanisms compose to a single one (Balle and Wang, ICML 2018)",
        }[plan.accountant]
        + (AT_INTEGERS if plan.secure else ""),
        "accountant": plan.accountant,
        "delta": plan.delta,
        "epsilon": json_number(account.epsilon(round)),
        "epsilon_of_private_phases": json_number(account.epsilon_of_covered(round)),
        "phases_without_client_privacy": account.uncovered(round),
        "simulated": not plan.secure,
        "not_covered": [
            "train_loss, evaluations and per-client records, which only the experimenter sees",
            *(["the example-level account, which reveals clients' sizes and the cohorts"] if samples else []),
            *(["the model that the run starts from, if it was trained on these clients"] if scenario.start else []),
            *([] if plan.secure else SIMULATED),
        ],
        "phases": [
            {
                "name": phase.name,
                "level": mechanism.level,
                "adversary": ADVERSARIES[mechanism.level],
                "sampling": SAMPLINGS[sampling_of(phase, len(sizes))[1]],
                "rate": sampling_of(phase, len(sizes))[0],
                "noise_multiplier": mechanism.noise_multiplier,
                "noise_multiplier_of_vectors": mechanism.vector_noise,
                "clip_norm": mechanism.clip_norm,
                "quantile": mechanism.quantile.quantile if mechanism.quantile else None,
                "released": [*mechanism.released.parts] or ["model"],
                "grid": _grid(mechanism),
                "secure": mechanism.secure,
            }
            for phase, mechanism in private
        ],
        "hypothetical": {
            "what": "epsilon of the same rounds with that many clients, the same noise on cohorts of the same size, "
            "and delta = 1 / clients^1.1",
            "epsilon_by_clients": {
                str(clients): json_number(value) for clients, value in projections.items() if value is not None
            },
        },
    }


def _grid(mechanism: ClientMechanism) -> float:
    """The grid of the sums in a phase's first round."""
    return lattice_of(mechanism, mechanism.clip_norm).step if mechanism.secure else 2.0**-mechanism.fraction_bits


def _public(scenario: Scenario, plan: ClientPlan) -> str:
    known = "the number of clients, the scenario, the average cohort size"
    targets = (
        mechanism and phase.local.dp and phase.local.dp.target_epsilon
        for phase, mechanism in zip(scenario.phases, plan.mechanisms, strict=True)
    )
    return f"{known}, the noise found for local.dp.target_epsilon" if any(targets) else known


def planned_cost(scenario: Scenario, plan: ClientPlan, sizes: np.ndarray) -> list[str]:
    """Returns the privacy cost of each phase of a run, one line each, for display before the run starts."""
    account, lines, last = ClientAccount(scenario, plan, sizes), [], 0
    for phase, mechanism in zip(scenario.phases, plan.mechanisms, strict=True):
        last += phase.rounds
        if mechanism is None:
            continue
        noise = f"noise multiplier {mechanism.noise_multiplier:.4g}"
        lines.append(
            f"{phase.name}: {mechanism.level} {noise}; clients' epsilon {_shown(account.epsilon_of_covered(last))} at "
            f"delta {plan.delta:.3g} after its {phase.rounds} rounds{_why(phase)}"
        )
    for clients in PROJECTED:
        value = account.projected(last, clients) if clients > len(sizes) else None
        if value is not None:
            lines.append(
                f"hypothetical: epsilon {_shown(value)} at delta {largest_delta(clients):.3g} with {clients:,} clients "
                "and the same noise per cohort"
            )
    if names := account.uncovered(last):
        lines.append(f"no client-level guarantee for the run: {', '.join(names)} without dp")
    return lines


def _why(phase: Phase) -> str:
    return "" if phase.hides_cohort else ", for the client that takes part most often; cohorts are not hidden"


def _shown(epsilon: float) -> str:
    return f"{epsilon:.3g}" if math.isfinite(epsilon) else "infinite"


def last_round_within_targets(
    scenario: Scenario, plan: ClientPlan, sizes: np.ndarray, discarded: Sequence[ChargedRound]
) -> int | None:
    """Returns the last round after which no phase has exceeded its target; None if none ever does.

    Args:
        scenario: The scenario.
        plan: How it hides clients.
        sizes: int64 [clients], the number of training samples of each client.
        discarded: Rounds that were charged in addition to those of the run.
    """
    account, done = ClientAccount(scenario, plan, sizes, discarded), 0
    for phase in scenario.phases:
        rounds, done = range(done + 1, done + phase.rounds + 1), done + phase.rounds
        target = phase.settings.dp.target_epsilon if phase.settings.dp else None
        if target is not None and account.epsilon_of_covered(done) > target:
            return rounds.start - 1 + bisect_right(rounds, target, key=account.epsilon_of_covered)
    return None
