"""Cohorts of more than a million clients are drawn as those of few: the same chances, at the cost of the cohort."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from itertools import chain, combinations, permutations
from math import prod
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy.stats import chi2

from rayfl.config.phase import Phase
from rayfl.engine.plan import cohort as cohort_module
from rayfl.engine.plan.cohort import MANY, cohort_of
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.streams import stream

PHASE: TypeAdapter[Phase] = TypeAdapter(Phase)
ROUNDS = 4000
HIDDEN = {"dp": {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01}}


def phase(cohort: Any, **others: Any) -> Phase:
    return PHASE.validate_python({"name": "p", "schedule": "relay", "rounds": 50, "cohort": cohort} | others)


def drawn(which: Phase, sizes: Any, previous: int | None = None) -> Counter[tuple[int, ...]]:
    """How often every cohort is drawn, in order."""
    rounds = (RoundIndex(0, round, round) for round in range(1, ROUNDS + 1))
    return Counter(tuple(cohort_of(which, 0, index, np.array(sizes), previous)) for index in rounds)


def check_chances(seen: Counter[tuple[int, ...]], chances: dict[tuple[int, ...], float]) -> None:
    """Compares counts with exact chances by a chi-square test."""
    assert sum(chances.values()) == pytest.approx(1)
    assert seen.keys() <= chances.keys()
    expected = np.array([*chances.values()]) * ROUNDS
    observed = np.array([seen[cohort] for cohort in chances])
    assert chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1) > 1e-6


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohort_module, "MANY", 0)


def by_size(sizes: list[int], number: int) -> dict[tuple[int, ...], float]:
    """The chance of every ordered cohort, drawn one by one in proportion to the sizes of those left."""

    def chance(cohort: tuple[int, ...]) -> float:
        left = [sum(sizes) - sum(sizes[client] for client in cohort[:place]) for place in range(number)]
        return prod(sizes[client] / total for client, total in zip(cohort, left, strict=True))

    return {cohort: chance(cohort) for cohort in permutations(range(len(sizes)), number)}


@pytest.mark.parametrize(("sizes", "number"), [([1, 2, 5, 4], 2), ([3, 1, 1, 2], 4), ([10_000, 4, 5, 6], 3)])
@pytest.mark.usefixtures("many")
def test_by_size_draws_one_by_one_in_proportion_to_the_sizes_of_those_left(sizes: list[int], number: int) -> None:
    check_chances(drawn(phase({"by_size": number}), sizes), by_size(sizes, number))


@pytest.mark.usefixtures("many")
def test_a_client_that_may_not_repeat_gives_way_to_another_by_size() -> None:
    alone = phase({"by_size": 1}, order="no_repeat")
    check_chances(drawn(alone, [50, 1, 3, 4], previous=0), {(1,): 1 / 8, (2,): 3 / 8, (3,): 4 / 8})


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("tries", [0, 100])
@pytest.mark.usefixtures("many")
def test_bernoulli_draws_every_set_of_clients_as_independent_draws_do(
    tries: int, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cohort_module, "BERNOULLI_TRIES", tries)
    probability, clients = 0.3, range(4)
    which = phase({"bernoulli": probability}, schedule="parallel", **(HIDDEN if hidden else {}))
    cohorts = chain.from_iterable(combinations(clients, size) for size in range(0 if hidden else 1, 5))
    chances = {cohort: probability ** len(cohort) * (1 - probability) ** (4 - len(cohort)) for cohort in cohorts}
    somebody = sum(chances.values())
    unordered = Counter[tuple[int, ...]]()
    for cohort, times in drawn(which, [1] * 4).items():
        unordered[tuple(sorted(cohort))] += times
    check_chances(unordered, {cohort: chance / somebody for cohort, chance in chances.items()})


@pytest.mark.usefixtures("many")
def test_the_order_of_a_bernoulli_cohort_is_random() -> None:
    everybody = phase({"bernoulli": 1.0})
    check_chances(drawn(everybody, [1] * 3), dict.fromkeys(permutations(range(3)), 1 / 6))


def peak_bytes(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cohort", [{"by_size": 20}, {"bernoulli": 1e-5}, 20], ids=str)
def test_above_a_million_clients_a_draw_costs_as_much_as_its_cohort(cohort: Any) -> None:
    sizes = np.full(3 * MANY, 2)
    which, index, ends = phase(cohort), RoundIndex(0, 1, 1), np.cumsum(sizes)
    assert peak_bytes(lambda: cohort_of(which, 0, index, sizes, ends=ends)) < 100_000


def test_up_to_a_million_clients_draws_are_what_they_were() -> None:
    sizes, index = np.arange(1, MANY + 1), RoundIndex(0, 2, 2)

    def rng() -> np.random.Generator:
        return stream(5, "cohort", 0, 2)

    three = rng().choice(MANY, 3, replace=False, p=sizes / sizes.sum())
    assert cohort_of(phase({"by_size": 3}), 5, index, sizes) == three.tolist()
    joined = np.flatnonzero((again := rng()).random(MANY) < 1e-5)
    assert cohort_of(phase({"bernoulli": 1e-5}), 5, index, sizes) == again.permutation(joined).tolist()
    others = np.delete(np.arange(MANY), previous := int((again := rng()).choice(MANY, 1, replace=False)[0]))
    alone = phase(1, order="no_repeat")
    assert cohort_of(alone, 5, index, sizes, previous) == [int(again.choice(others))]
