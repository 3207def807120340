"""How phases will access clients' samples under `local.dp`, derived before the run from cohorts and sizes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from rayfl.config.local import Local
from rayfl.config.scenario import Scenario
from rayfl.data.held_out import pool_number
from rayfl.engine.plan.cohort import drawn_in_secret
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.sampling import Sampling
from rayfl.local.steps import drawn, largest, other_length, smallest, update_steps
from rayfl.privacy.samples.batches import sampling_rate
from rayfl.privacy.samples.calibration import Access, Accesses
from rayfl.streams import client_stream


class PlannedUpdates:
    """How a phase's client updates access clients' samples.

    Args:
        plan: The phase, with its clients.
    """

    def __init__(self, plan: PhasePlan) -> None:
        self._plan, self._sizes = plan, plan.population.sizes
        self._smallest, self._largest = smallest(plan.phase.local), largest(plan.phase.local)
        self._of_kind = cache(self._accesses)

    def at_most(self, client: int) -> Accesses:
        """Returns the accesses of a client, or of the pool of all clients' samples, in a round.

        Numbers that are drawn for every round (`epochs = { uniform = [1, 5] }`) count at their largest.
        """
        return self._of(client, self._largest)

    def at_least(self, client: int) -> Accesses:
        """The same with the smallest of every number that is drawn."""
        return self._of(client, self._smallest)

    def in_round(self, client: int, index: RoundIndex, seed: int, exchange: int | None = None) -> Accesses:
        """Returns the accesses in this particular round, with the numbers that the client will draw in it.

        Args:
            client: The client or pool.
            index: The round.
            seed: The scenario's seed.
            exchange: One exchange of the round; None for all.
        """

        def stream(purpose: str) -> np.random.Generator:
            return client_stream(seed, purpose, index.phase, index.round, client)

        return self._of(client, drawn(self._plan.phase.local, stream), exchange)

    def _of(self, client: int, local: Local, exchange: int | None = None) -> Accesses:
        samples = self._sizes[client] if client < len(self._sizes) else self._sizes.sum()
        return self._of_kind(int(samples), local.epochs, local.steps, exchange)

    def _accesses(self, samples: int, epochs: int, steps: int | None, exchange: int | None) -> Accesses:
        local = self._largest.model_copy(update={"epochs": epochs, "steps": steps})
        central = self._plan.phase.pool is not None
        algorithm, accesses = self._plan.algorithm, Counter[Access]()
        trained = samples if central else int(algorithm.training_sizes(np.array([samples]))[0])
        several = self._plan.asked.count("cohort") > 1
        for request in self._plan.sample_requests():
            if exchange is not None and several and request.exchange != exchange:
                continue
            if request.kind == "training":
                asked = local.model_copy(update=other_length(request.epochs, request.steps))
                accesses[Access(sampling_rate(local, trained), request.part)] += update_steps(asked, trained)
            else:
                number = update_steps(local, samples) if request.every_step else 1
                accesses[Access(1.0, request.part)] += number * request.results
        return accesses


def touches_clients(plan: PhasePlan) -> bool:
    """Whether a phase reads any client's training samples."""
    return plan.phase.pool != "server"


def participations(scenario: Scenario, plans: Sequence[PhasePlan]) -> list[Mapping[int, int]]:
    """Returns, by phase, in how many rounds each client or pool takes part, which the scenario's seed determines.

    A user's own samplers are asked as in the run itself; those that read what clients report cannot be used with
    `local.dp`. If the operating system draws cohorts (`phases.N.dp.secure`), the participants are unknown, and every
    client counts in every round.
    """
    sampling = Sampling(scenario, plans)
    by_phase: list[Mapping[int, int]] = []
    for plan in plans:
        clients = plan.num_clients
        if drawn_in_secret(plan.phase, clients):
            by_phase.append(dict.fromkeys(range(clients), plan.phase.rounds))
            continue
        taken: Counter[int] = Counter()
        for round_in_phase in range(1, plan.phase.rounds + 1):
            index = RoundIndex(plan.number, plan.first_round + round_in_phase - 1, round_in_phase)
            taken.update(sampling.draw(index))
            sampling.commit(index, ())
        by_phase.append(taken)
    return by_phase


def is_pool(client: int, plan: PhasePlan) -> bool:
    """Whether a number denotes the pool of all clients' samples."""
    return client == pool_number("clients", plan.num_clients)
