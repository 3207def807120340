"""The client-level privacy of a run in words and numbers, for its records and for the reader.

Also how long it may continue within `phases.N.dp.target_epsilon` after rounds that the plan did not include.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rayfl.config.phase import Phase
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
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.privacy.clients.accounting import Release, accountants_of, epsilon_of
from rayfl.privacy.clients.mechanism import ClientMechanism, lattice_of
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
        run: The run's plan, with `phases.N.dp` in at least one phase.
        discarded: Rounds that were charged in addition to those of the run; they count for any round.
    """

    def __init__(self, run: RunPlan, discarded: Sequence[ChargedRound] = ()) -> None:
        assert run.accounting is not None
        self._plans, self._accounting = run.phases, run.accounting
        self._noise = [None if plan.hiding is None else plan.hiding.noise_multiplier for plan in run.phases]
        self._ledger = ClientLedger(run.scenario, self._noise, run.phases[0].population.sizes, discarded)
        self._discarded = Counter(charged.phase for charged in discarded)

    @property
    def relation(self) -> Relation:
        """How neighbouring sets of clients differ."""
        return relation_of(next(plan.phase for plan in self._plans if plan.hiding))

    def epsilon(self, round: int) -> float:
        """Returns epsilon after this round of the scenario; infinite once a phase without `dp` used clients' data."""
        return math.inf if self.uncovered(round) else self.epsilon_of_covered(round)

    def epsilon_of_covered(self, round: int) -> float:
        """The same for phases with `dp` only."""
        of = self._accounting
        return epsilon_of(self._ledger.spent(round), of.delta, of.accountant, of.secure)

    def uncovered(self, round: int) -> list[str]:
        """Returns the names of the phases up to a round that use clients' data without `dp`."""
        names = []
        for plan in self._plans:
            at_server, begun = plan.phase.pool == "server", plan.first_round <= round or self._discarded[plan.number]
            if plan.hiding is None and not at_server and plan.phase.rounds and begun:
                names.append(plan.phase.name)
        return names

    def projected(self, round: int, num_clients: int) -> float | None:
        """Returns epsilon for another number of clients, with the same noise on cohorts of the same size.

        None if cohorts are not sampled. Delta is the largest value allowed for that number of clients.
        """
        spent: Counter[Release] = Counter()
        for plan, noise in zip(self._plans, self._noise, strict=True):
            phase = plan.phase
            rounds = max(0, min(phase.rounds, round - plan.first_round + 1)) + self._discarded[plan.number]
            if noise is None or not rounds:
                continue
            rate = expected_cohort_size(phase, plan.num_clients) / num_clients
            if knows_participants(phase) or rate >= 1:
                return None
            poisson = relation_of(phase) == "one client more or less"
            multiplier = release_of(phase, noise, plan.num_clients).noise_multiplier
            spent[Release(multiplier, "poisson" if poisson else "without_replacement", rate)] += rounds
        accountant = accountants_of({release.sampling for release in spent})[0] if spent else "exact"
        accountant = "rdp" if self._accounting.accountant == "rdp" else accountant
        return epsilon_of(history(spent), largest_delta(num_clients), accountant, self._accounting.secure)


def client_statement(run: RunPlan, round: int, discarded: Sequence[ChargedRound] = ()) -> dict[str, Any]:
    """Returns the client-level privacy of a run after a round, as plain data.

    Args:
        run: The run's plan, with `phases.N.dp` in at least one phase.
        round: The last committed round, counted over the scenario.
        discarded: See `ClientAccount`.
    """
    account, accounting = ClientAccount(run, discarded), run.accounting
    assert accounting is not None
    private = [(plan.phase, plan.hiding) for plan in run.phases if plan.hiding]
    samples = any(plan.phase.local.dp for plan in run.phases)
    num_clients = run.phases[0].num_clients
    projections = {clients: account.projected(round, clients) for clients in PROJECTED if clients > num_clients}
    return {
        "unit": "client: all samples of one client",
        "relation": account.relation,
        "public": _public(run),
        "composition": {
            "prv": "numerical composition of privacy loss (Gopi et al., NeurIPS 2021)",
            "rdp": "Rényi differential privacy; without replacement by Wang, Balle and Kasiviswanathan (AISTATS 2019)",
            "exact": "Gaussian mechanisms compose to a single one (Balle and Wang, ICML 2018)",
        }[accounting.accountant]
        + (AT_INTEGERS if accounting.secure else ""),
        "accountant": accounting.accountant,
        "delta": accounting.delta,
        "epsilon": json_number(account.epsilon(round)),
        "epsilon_of_private_phases": json_number(account.epsilon_of_covered(round)),
        "phases_without_client_privacy": account.uncovered(round),
        "simulated": not accounting.secure,
        "not_covered": [
            "train_loss, evaluations and per-client records, which only the experimenter sees",
            *(["the example-level account, which reveals clients' sizes and the cohorts"] if samples else []),
            *(["the model that the run starts from, if it was trained on these clients"] if run.scenario.start else []),
            *([] if accounting.secure else SIMULATED),
        ],
        "phases": [
            {
                "name": phase.name,
                "level": mechanism.level,
                "adversary": ADVERSARIES[mechanism.level],
                "sampling": SAMPLINGS[sampling_of(phase, num_clients)[1]],
                "rate": sampling_of(phase, num_clients)[0],
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


def _public(run: RunPlan) -> str:
    known = "the number of clients, the scenario, the average cohort size"
    targets = (plan.hiding and plan.phase.local.dp and plan.phase.local.dp.target_epsilon for plan in run.phases)
    return f"{known}, the noise found for local.dp.target_epsilon" if any(targets) else known


def planned_cost(run: RunPlan) -> list[str]:
    """Returns the privacy cost of each phase of a run, one line each, for display before the run starts."""
    account, lines, last = ClientAccount(run), [], 0
    assert run.accounting is not None
    for plan in run.phases:
        phase, last = plan.phase, last + plan.phase.rounds
        if plan.hiding is None:
            continue
        noise = f"noise multiplier {plan.hiding.noise_multiplier:.4g}"
        lines.append(
            f"{phase.name}: {plan.hiding.level} {noise}; clients' epsilon {_shown(account.epsilon_of_covered(last))} "
            f"at delta {run.accounting.delta:.3g} after its {phase.rounds} rounds{_why(phase)}"
        )
    for clients in PROJECTED:
        value = account.projected(last, clients) if clients > run.phases[0].num_clients else None
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


def last_round_within_targets(run: RunPlan, discarded: Sequence[ChargedRound]) -> int | None:
    """Returns the last round after which no phase has exceeded its target; None if none ever does.

    Args:
        run: The run's plan, with `phases.N.dp` in at least one phase.
        discarded: Rounds that were charged in addition to those of the run.
    """
    account, done = ClientAccount(run, discarded), 0
    for phase in run.scenario.phases:
        rounds, done = range(done + 1, done + phase.rounds + 1), done + phase.rounds
        target = phase.settings.dp.target_epsilon if phase.settings.dp else None
        if target is not None and account.epsilon_of_covered(done) > target:
            return rounds.start - 1 + bisect_right(rounds, target, key=account.epsilon_of_covered)
    return None
