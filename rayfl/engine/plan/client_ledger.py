"""The releases of a run about its clients, derived from the scenario and from charged rounds that were lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from rayfl.config.cohort import Bernoulli, Explicit
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.cohort import cohort_of, expected_cohort_size
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.privacy.clients.accounting import History, Release, Sampling
from rayfl.privacy.composition import history
from rayfl.privacy.release_ledger import ChargedRound

Relation = Literal["one client more or less", "one client replaced by another"]


def relation_of(phase: Phase) -> Relation:
    """Returns how neighbouring sets of clients differ: by one additional client only if the cohort size is random."""
    added = phase.hides_cohort and isinstance(phase.settings.cohort, Bernoulli)
    return "one client more or less" if added else "one client replaced by another"


def release_of(phase: Phase, noise_multiplier: float, num_clients: int) -> Release:
    """Returns the release of one round of a phase.

    Replacing a client changes a sum by two contributions, which halves the noise relative to the sensitivity.

    Args:
        phase: A phase with `dp`.
        noise_multiplier: Given by the phase, or found for its target.
        num_clients: Number of all clients.
    """
    sensitivities = 1 if relation_of(phase) == "one client more or less" else 2
    rate, sampling = sampling_of(phase, num_clients)
    return Release(noise_multiplier / sensitivities, sampling, rate)


def sampling_of(phase: Phase, num_clients: int) -> tuple[float, Sampling]:
    """Returns the rate and kind of sampling of a hidden cohort; 1 and `none` if the participants are not hidden."""
    if not phase.hides_cohort or isinstance(phase.settings.cohort, Explicit):
        return 1.0, "none"
    poisson = isinstance(phase.settings.cohort, Bernoulli)
    rate = expected_cohort_size(phase, num_clients) / num_clients
    return (1.0, "none") if rate == 1 else (rate, "poisson" if poisson else "without_replacement")


def knows_participants(phase: Phase) -> bool:
    """Whether a client is charged only for rounds in which it takes part, because the participants are known."""
    return not phase.hides_cohort or isinstance(phase.settings.cohort, Explicit)


class ClientLedger:
    """The releases, up to any round, about the least protected client.

    Args:
        scenario: The scenario.
        noise: The noise multiplier of each phase; None for those without `dp`.
        sizes: int64 [clients], the number of training samples of each client.
        discarded: Rounds that were charged in addition to those of the run.
    """

    def __init__(
        self,
        scenario: Scenario,
        noise: Sequence[float | None],
        sizes: np.ndarray,
        discarded: Sequence[ChargedRound] = (),
    ) -> None:
        self._scenario, self._noise, self._sizes, self._discarded = scenario, noise, sizes, discarded
        self._counted: dict[int, tuple[int, np.ndarray]] = {}

    def with_noise(self, noise: Sequence[float | None]) -> ClientLedger:
        """Returns the same rounds with other noise; the participants are not drawn again."""
        other = ClientLedger(self._scenario, noise, self._sizes, self._discarded)
        other._counted = self._counted
        return other

    def spent(self, round: int) -> History:
        """Returns the releases of the first `round` rounds of the scenario about the least protected client.

        Rounds that were charged but lost are added, whichever phase they belong to.
        """
        everybody: Counter[Release] = Counter()
        known: list[tuple[Release, np.ndarray]] = []
        first = 1
        for number, (phase, noise) in enumerate(zip(self._scenario.phases, self._noise, strict=True)):
            rounds = max(0, min(phase.rounds, round - first + 1))
            discarded = [charged for charged in self._discarded if charged.phase == number]
            if noise is not None and (rounds or discarded):
                release = release_of(phase, noise, len(self._sizes))
                if knows_participants(phase):
                    times = self._participations(number, first, rounds)
                    known.append((release, times + _takers(discarded, len(self._sizes))))
                else:
                    everybody[release] += rounds + len(discarded)
            first += phase.rounds
        if known:
            # avoids dividing by a noise of zero
            cost = sum(times / max(release.noise_multiplier, 1e-150) ** 2 for release, times in known)
            worst = int(np.argmax(cost))
            for release, times in known:
                everybody[release] += int(times[worst])
        return history(everybody)

    def _participations(self, phase: int, first: int, rounds: int) -> np.ndarray:
        """[clients] int64: in how many of the phase's first rounds each client takes part."""
        done, counts = self._counted.get(phase, (0, np.zeros(len(self._sizes), np.int64)))
        if done > rounds:
            done, counts = 0, np.zeros_like(counts)
        chosen, seed = self._scenario.phases[phase], self._scenario.seed
        for round_in_phase in range(done + 1, rounds + 1):
            index = RoundIndex(phase, first + round_in_phase - 1, round_in_phase)
            counts[cohort_of(chosen, seed, index, self._sizes)] += 1
        self._counted[phase] = rounds, counts
        return counts


def _takers(rounds: Sequence[ChargedRound], num_clients: int) -> np.ndarray:
    """[clients] int64: in how many of some rounds each client took part."""
    taken = [client for charged in rounds for client in charged.clients]
    return np.bincount(np.array(taken, np.int64), minlength=num_clients)
