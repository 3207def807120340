"""Who takes part in a round, and in which order a relay visits them."""

from __future__ import annotations

import math

import numpy as np

from rayfl.config.phase import Bernoulli, BySize, Given, Phase
from rayfl.engine.turn import Turn
from rayfl.errors import ScenarioError
from rayfl.streams import stream


def check_cohort(phase: Phase, where: str, num_clients: int) -> None:
    """Raises ScenarioError where a phase asks for clients that there are not; `where` is its key path."""
    cohort = phase.cohort
    number = cohort.by_size if isinstance(cohort, BySize) else cohort
    if isinstance(number, int) and number > num_clients:
        raise ScenarioError(f"{where}.cohort: {number} clients per round, but there are {num_clients}")
    if isinstance(cohort, Given):
        for index, clients in enumerate(cohort.given):
            strange = [client for client in clients if not 0 <= client < num_clients]
            if strange:
                raise ScenarioError(
                    f"{where}.cohort: list {index} names client {strange[0]}; they are 0 to {num_clients - 1}"
                )
            if len(clients) == 1 and phase.order == "no_repeat":
                raise ScenarioError(
                    f"{where}.order: 'no_repeat' may replace the only client of list {index}; use 'sampled'"
                )
            if len(set(clients)) != len(clients):
                raise ScenarioError(f"{where}.cohort: list {index} names a client twice")
    if phase.order == "no_repeat" and num_clients == 1:
        raise ScenarioError(f"{where}.order: 'no_repeat' needs at least two clients")


def cohort_of(phase: Phase, seed: int, turn: Turn, sizes: np.ndarray, previous: int | None = None) -> list[int]:
    """The clients of a round, in the order of their visits.

    A share is rounded down, to at least one client, as MOON, NIID-Bench and FedExP do. Bernoulli draws are repeated
    until somebody takes part, as in FedDyn and FedBug. Of clients drawn by size, each is drawn in proportion to the
    sizes of those that are left, as in q-FFL's code: the larger tend to come first.

    sizes: [clients] int64, training examples of each client, above 0.
    previous: the last client of the round before, which `order = "no_repeat"` does not let come first.
    """
    rng = stream(seed, "cohort", turn.phase, turn.round)
    clients = _drawn(phase, rng, turn, sizes)
    if phase.order == "fixed":
        return sorted(clients)
    if phase.order == "no_repeat" and clients[0] == previous:
        if len(clients) > 1:
            other = int(rng.integers(1, len(clients)))
            clients[0], clients[other] = clients[other], clients[0]
        else:
            others = np.delete(np.arange(len(sizes)), previous)
            weights = _shares(sizes[others]) if isinstance(phase.cohort, BySize) else None
            clients = [int(rng.choice(others, p=weights))]
    return clients


def _drawn(phase: Phase, rng: np.random.Generator, turn: Turn, sizes: np.ndarray) -> list[int]:
    cohort, num_clients = phase.cohort, len(sizes)
    if isinstance(cohort, Given):
        return list(cohort.given[(turn.round_in_phase - 1) % len(cohort.given)])
    if isinstance(cohort, Bernoulli):
        while True:
            joined = np.flatnonzero(rng.random(num_clients) < cohort.bernoulli)
            if len(joined):
                return [int(client) for client in rng.permutation(joined)]
    if isinstance(cohort, BySize):
        return [int(client) for client in rng.choice(num_clients, cohort.by_size, replace=False, p=_shares(sizes))]
    # the small number keeps 0.29 * 100 = 28.999... at 29
    size = cohort if isinstance(cohort, int) else max(1, math.floor(cohort * num_clients + 1e-9))
    return [int(client) for client in rng.choice(num_clients, size, replace=False)]


def _shares(sizes: np.ndarray) -> np.ndarray:
    shares: np.ndarray = sizes / sizes.sum()
    return shares
