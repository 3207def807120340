"""Draws the clients of a round, in the order in which a relay trains them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from rayfl.algorithms.construction import build_sampler
from rayfl.config.cohort import Bernoulli, BySampler, BySize, Explicit, Pooled
from rayfl.config.phase import AsynchronousPhase, Phase
from rayfl.data.held_out import pool_number
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.errors import ScenarioError
from rayfl.privacy import secure_noise as system_random
from rayfl.streams import stream

BERNOULLI_TRIES = 100
"""Draws of a round before switching to a draw conditioned on at least one client."""

MANY = 1_000_000
"""Above this number of clients, `by_size` and `bernoulli` draw the clients of a cohort, rather than draw for each."""


def check_cohort(phase: Phase, where: str, num_clients: int) -> None:
    """Checks that a phase asks for clients that exist.

    Args:
        phase: Any phase.
        where: Its key path, for error messages.
        num_clients: Number of clients in the data.

    Raises:
        ScenarioError: The phase asks for more clients than there are, names an unknown client or one client twice, asks
            for an order that its cohorts cannot have, or its sampler's options do not fit.
    """
    cohort = phase.settings.cohort
    if isinstance(cohort, BySampler):
        if phase.settings.order == "no_repeat":
            raise ScenarioError(f"{where}.order: 'no_repeat' would change the sampler's cohort; use 'sampled'")
        try:
            cohort_sizes(phase, num_clients)
        except ScenarioError as error:
            raise ScenarioError(f"{where}.cohort: {error}") from None
    number = cohort.by_size if isinstance(cohort, BySize) else cohort
    if isinstance(number, int) and number > num_clients:
        raise ScenarioError(f"{where}.cohort: {number} clients per round, but there are {num_clients}")
    if isinstance(cohort, Explicit):
        for index, clients in enumerate(cohort.explicit):
            unknown = [client for client in clients if not 0 <= client < num_clients]
            if unknown:
                raise ScenarioError(
                    f"{where}.cohort: list {index} names client {unknown[0]}; clients are 0 to {num_clients - 1}"
                )
            if len(clients) == 1 and phase.settings.order == "no_repeat":
                raise ScenarioError(
                    f"{where}.order: 'no_repeat' may replace the only client of list {index}; use 'sampled'"
                )
            if len(set(clients)) != len(clients):
                raise ScenarioError(f"{where}.cohort: list {index} names a client twice")
    if phase.settings.order == "no_repeat" and num_clients == 1:
        raise ScenarioError(f"{where}.order: 'no_repeat' needs at least two clients")


def cohort_sizes(phase: Phase, num_clients: int) -> tuple[int, int]:
    """The smallest and the largest number of clients that a round of a phase can have."""
    cohort = phase.settings.cohort
    if isinstance(cohort, Explicit):
        lengths = [len(clients) for clients in cohort.explicit]
        return min(lengths), max(lengths)
    if isinstance(cohort, Bernoulli):
        return 0 if phase.hides_cohort else 1, num_clients
    if isinstance(cohort, BySize):
        return cohort.by_size, cohort.by_size
    if isinstance(cohort, BySampler):
        return build_sampler(phase).cohort_sizes(num_clients)
    if isinstance(cohort, Pooled):
        return 1, 1
    # the small number keeps 0.29 * 100 = 28.999... at 29
    size = cohort if isinstance(cohort, int) else max(1, math.floor(cohort * num_clients + 1e-9))
    return size, size


def drawn_size(phase: Phase, num_clients: int) -> int:
    """Number of clients that a round of a phase draws, if it is fixed, including those of `over_selection`."""
    size, _ = cohort_sizes(phase, num_clients)
    return min(num_clients, math.ceil(size * phase.settings.over_selection - 1e-9))


def candidates(phase: Phase, num_clients: int) -> Iterable[int]:
    """All clients that a round of a phase may draw."""
    cohort = phase.settings.cohort
    if isinstance(cohort, Explicit):
        return sorted({client for clients in cohort.explicit for client in clients})
    if isinstance(cohort, Pooled):
        return [pool_number(cohort.pool, num_clients)]
    return range(num_clients)


def expected_cohort_size(phase: Phase, num_clients: int) -> float:
    """The mean number of clients in a phase's rounds."""
    cohort = phase.settings.cohort
    if isinstance(cohort, Explicit):
        return sum(map(len, cohort.explicit)) / len(cohort.explicit)
    if isinstance(cohort, Bernoulli):
        return cohort.bernoulli * num_clients
    return sum(cohort_sizes(phase, num_clients)) / 2


def expected_updates(phase: Phase, num_clients: int) -> float:
    """The mean number of client updates in a phase's rounds: one for each client, or the answers of a step."""
    if isinstance(phase, AsynchronousPhase):
        return phase.answers_per_step
    return expected_cohort_size(phase, num_clients)


def drawn_in_secret(phase: Phase, num_clients: int) -> bool:
    """Whether the operating system draws the cohorts, so that they cannot be predicted."""
    return phase.settings.dp is not None and phase.settings.dp.secure and draws_hidden(phase, num_clients)


def draws_hidden(phase: Phase, num_clients: int) -> bool:
    """Whether `dp` hides the cohort and it is drawn, rather than listed or all clients."""
    if not phase.hides_cohort or isinstance(phase.settings.cohort, Explicit):
        return False
    return expected_cohort_size(phase, num_clients) < num_clients


def cohort_of(
    phase: Phase,
    seed: int,
    round_index: RoundIndex,
    sizes: np.ndarray,
    previous: int | None = None,
    ends: np.ndarray | None = None,
) -> list[int]:
    """Draws the clients of a round, in the order in which a relay trains them.

    A share is rounded down, but to at least one client, as in MOON, NIID-Bench and FedExP. Bernoulli draws are repeated
    until at least one client takes part, as in FedDyn and FedBug, unless `dp` hides the cohort. Clients drawn by size
    are drawn one by one in proportion to the sizes of the remaining ones, as in q-FFL's code, so larger clients tend to
    come first.

    Args:
        phase: The round's phase.
        seed: The scenario's seed.
        round_index: Position of the round within the scenario.
        sizes: int64 [clients], the number of training samples of each client, above 0.
        previous: The last client of the previous round; with `order = "no_repeat"` it does not come first.
        ends: The cumulative sum of `sizes`, which draws by size from more than `MANY` clients need, if it is known.

    Returns:
        Numbers of distinct clients, at least one unless `dp` hides the cohort.
    """
    if drawn_in_secret(phase, len(sizes)):  # a public seed would reveal the cohort
        return _drawn_in_secret(phase, len(sizes))
    rng = stream(seed, "cohort", round_index.phase, round_index.round)
    clients = in_order(phase, _drawn(phase, rng, round_index, sizes, ends))
    if phase.settings.order == "no_repeat" and clients[0] == previous:
        if len(clients) > 1:
            other = int(rng.integers(1, len(clients)))
            clients[0], clients[other] = clients[other], clients[0]
        else:
            clients = [_other_than(clients[0], phase, rng, sizes, ends)]
    return clients


def _other_than(client: int, phase: Phase, rng: np.random.Generator, sizes: np.ndarray, ends: np.ndarray | None) -> int:
    if not isinstance(phase.settings.cohort, BySize):
        place = int(rng.choice(len(sizes) - 1))
        return place + (place >= client)
    if len(sizes) > MANY:
        first, second = _by_size(rng, sizes, ends, 2)
        return second if first == client else first
    others = np.delete(np.arange(len(sizes)), client)
    return int(rng.choice(others, p=_shares(sizes[others])))


def _drawn_in_secret(phase: Phase, num_clients: int) -> list[int]:
    cohort = phase.settings.cohort
    if isinstance(cohort, Bernoulli):
        joined = np.flatnonzero(system_random.chosen(num_clients, Fraction(cohort.bernoulli)))
        drawn = joined[system_random.permutation(len(joined))]
    else:
        size, _ = cohort_sizes(phase, num_clients)
        drawn = system_random.sample(num_clients, size)
    return in_order(phase, drawn.tolist())


def in_order(phase: Phase, clients: list[int]) -> list[int]:
    """Drawn clients in the order that the phase asks for, without regard to the previous round."""
    return sorted(clients) if phase.settings.order == "fixed" else clients


def _drawn(
    phase: Phase, rng: np.random.Generator, round_index: RoundIndex, sizes: np.ndarray, ends: np.ndarray | None
) -> list[int]:
    cohort, num_clients = phase.settings.cohort, len(sizes)
    if isinstance(cohort, Pooled):
        return [pool_number(cohort.pool, num_clients)]
    if isinstance(cohort, Explicit):
        return list(cohort.explicit[(round_index.round_in_phase - 1) % len(cohort.explicit)])
    if isinstance(cohort, Bernoulli):
        tries = 1 if phase.hides_cohort else BERNOULLI_TRIES
        return [int(client) for client in rng.permutation(_joined(cohort.bernoulli, rng, num_clients, tries))]
    if isinstance(cohort, BySize):
        size = drawn_size(phase, num_clients)
        if num_clients > MANY:
            return _by_size(rng, sizes, ends, size)
        return [int(client) for client in rng.choice(num_clients, size, replace=False, p=_shares(sizes))]
    return [int(client) for client in rng.choice(num_clients, drawn_size(phase, num_clients), replace=False)]


def _joined(probability: float, rng: np.random.Generator, num_clients: int, tries: int) -> np.ndarray:
    """Draws each client with this probability, conditioned on at least one client unless there is only one try."""
    for _ in range(tries):
        joined = _independent(probability, rng, num_clients)
        if len(joined) or tries == 1:
            return joined
    # conditioned on at least one client, the first one is geometric, truncated at the last client; later ones are
    # independent (below 1e-300, where float64 runs out of digits, the first one is uniform)
    log_absent = math.log1p(-max(probability, 1e-300))
    somebody = -math.expm1(num_clients * log_absent)
    first = min(int(math.log1p(-rng.random() * somebody) / log_absent), num_clients - 1)
    followers = first + 1 + _independent(probability, rng, num_clients - first - 1)
    return np.append(first, followers)


def _independent(probability: float, rng: np.random.Generator, num_clients: int) -> np.ndarray:
    if num_clients <= MANY:
        return np.flatnonzero(rng.random(num_clients) < probability)
    return rng.choice(num_clients, rng.binomial(num_clients, probability), replace=False, shuffle=False)


def _by_size(rng: np.random.Generator, sizes: np.ndarray, ends: np.ndarray | None, number: int) -> list[int]:
    """Draws the owners of random samples, and passes over those drawn before."""
    ends = np.cumsum(sizes) if ends is None else ends
    owners = np.searchsorted(ends, rng.integers(ends[-1], size=2 * number + 16), side="right")
    clients = list(dict.fromkeys(owners.tolist()))[:number]
    if missing := number - len(clients):  # a few clients own most of the samples
        others = np.array(sizes)
        others[clients] = 0
        clients += rng.choice(len(sizes), missing, replace=False, p=_shares(others)).tolist()
    return clients


def _shares(sizes: np.ndarray) -> np.ndarray:
    shares: np.ndarray = sizes / sizes.sum()
    return shares
