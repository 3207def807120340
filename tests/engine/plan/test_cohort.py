from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from rayfl.config.phase import Phase
from rayfl.engine.plan import cohort as cohort_module
from rayfl.engine.plan.cohort import check_cohort, cohort_of
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.errors import ScenarioError

PHASE: TypeAdapter[Phase] = TypeAdapter(Phase)


def phase(cohort: Any, order: str = "sampled") -> Phase:
    tables = {"name": "p", "schedule": "relay", "rounds": 50, "cohort": cohort, "order": order}
    return PHASE.validate_python(tables)


def alike(clients: int) -> np.ndarray:
    return np.full(clients, 10)


def at(round: int) -> RoundIndex:
    return RoundIndex(phase=0, round=round, round_in_phase=round)


@pytest.mark.parametrize("cohort", [{"bernoulli": 0.25}, 3])
def test_secret_cohorts_are_drawn_evenly_and_never_from_the_seed(cohort: Any) -> None:
    dp = {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01, "secure": True}
    hidden = PHASE.validate_python({"name": "p", "schedule": "parallel", "rounds": 1, "cohort": cohort, "dp": dp})
    drawn = [cohort_of(hidden, 1, at(1), alike(12)) for _ in range(800)]
    assert all(len(set(clients)) == len(clients) for clients in drawn)
    if cohort == 3:
        assert {len(clients) for clients in drawn} == {3}
    else:
        assert min(map(len, drawn)) == 0
    first, anywhere = (Counter(client for c in drawn for client in c[:last]) for last in (1, 12))
    for counts, chance in ((anywhere, 0.25), (first, sum(map(bool, drawn)) / 800 / 12)):
        assert all(abs(counts[client] - 800 * chance) < 6 * (800 * chance) ** 0.5 for client in range(12))


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(0, 2**32), st.integers(1, 1000))
def test_a_fixed_number_of_distinct_clients_depends_on_seed_and_round_alone(size: int, seed: int, round: int) -> None:
    cohort = cohort_of(phase(size), seed, at(round), alike(40))
    assert len(cohort) == len(set(cohort)) == size
    assert all(0 <= client < 40 for client in cohort)
    assert cohort == cohort_of(phase(size), seed, at(round), alike(40))


@pytest.mark.parametrize(("share", "clients", "size"), [(0.25, 190, 47), (0.29, 100, 29), (1.0, 7, 7), (0.001, 10, 1)])
def test_a_share_is_rounded_down_to_at_least_one(share: float, clients: int, size: int) -> None:
    assert len(cohort_of(phase(share), 0, at(1), alike(clients))) == size


def test_sampling_is_uniform() -> None:
    three = phase(3)
    counts = Counter(client for round in range(1, 1001) for client in cohort_of(three, 0, at(round), alike(10)))
    # 300 expected for each, with a standard deviation of sqrt(1000 * 0.3 * 0.7) = 14.5
    assert all(abs(counts[client] - 300) < 5 * 14.5 for client in range(10))


def test_bernoulli_draws_until_somebody_takes_part() -> None:
    rare = phase({"bernoulli": 0.02})
    sizes = [len(cohort_of(rare, 0, at(round), alike(20))) for round in range(1, 1501)]
    assert min(sizes) == 1
    # the mean of a binomial that is not zero: n p / (1 - (1 - p)^n) = 1.2034
    assert np.mean(sizes) == pytest.approx(0.4 / (1 - 0.98**20), abs=0.05)


@pytest.mark.parametrize("probability", [5e-324, 1e-6])
def test_a_bernoulli_draw_ends_however_small_the_probability(probability: float) -> None:
    rare = phase({"bernoulli": probability})
    drawn = Counter(cohort_of(rare, 0, at(round), alike(4))[0] for round in range(1, 401))
    # one of four alike: 100 expected for each, with a standard deviation of sqrt(400 * 3 / 16) = 8.7
    assert all(abs(drawn[client] - 100) < 4 * 8.7 for client in range(4))


def test_cohorts_drawn_after_many_empty_tries_are_distributed_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the 7 cohorts of three clients that are not empty, as often as independent draws give it."""
    monkeypatch.setattr(cohort_module, "BERNOULLI_TRIES", 0)
    probability, rounds = 0.4, 1500
    often = phase({"bernoulli": probability})
    drawn = Counter(tuple(sorted(cohort_of(often, 0, at(round), alike(3)))) for round in range(1, rounds + 1))
    for size in (1, 2, 3):
        expected = probability**size * (1 - probability) ** (3 - size) / (1 - (1 - probability) ** 3)
        error = (expected * (1 - expected) / rounds) ** 0.5
        for members in combinations(range(3), size):
            assert drawn[members] / rounds == pytest.approx(expected, abs=4.5 * error)


def test_clients_drawn_by_size_are_distinct_and_repeat_with_the_seed() -> None:
    sizes = np.arange(1, 41)
    cohort = cohort_of(phase({"by_size": 40}), 3, at(1), sizes)
    assert sorted(cohort) == list(range(40))
    assert cohort == cohort_of(phase({"by_size": 40}), 3, at(1), sizes)
    assert cohort != cohort_of(phase({"by_size": 40}), 3, at(2), sizes)


def test_a_draw_by_size_takes_each_client_in_proportion_to_the_sizes_of_those_left() -> None:
    two = phase({"by_size": 2})
    drawn = Counter(tuple(cohort_of(two, 0, at(round), np.array([1, 2, 5]))) for round in range(1, 1501))
    expected = {(i, j): si / 8 * sj / (8 - si) for i, si in enumerate([1, 2, 5]) for j, sj in enumerate([1, 2, 5])}
    for pair, probability in expected.items():
        if pair[0] != pair[1]:
            error = (probability * (1 - probability) / 1500) ** 0.5
            assert drawn[pair] / 1500 == pytest.approx(probability, abs=5 * error)


def test_one_client_drawn_by_size_that_may_not_repeat_gives_way_to_another_by_size() -> None:
    alone = phase({"by_size": 1}, "no_repeat")
    drawn = Counter(cohort_of(alone, 0, at(round), np.array([100, 1, 3]), 0)[0] for round in range(1, 801))
    assert drawn[0] == 0
    assert drawn[2] / 800 == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / 800) ** 0.5)


@pytest.mark.parametrize("number", [0, 2.5, "ten", True])
def test_a_draw_by_size_needs_a_number_of_clients(number: Any) -> None:
    with pytest.raises(ValidationError, match=r"\{ by_size = number \}"):
        phase({"by_size": number})


def test_explicit_cohorts_are_repeated_in_order() -> None:
    lists = phase({"explicit": [[3, 1], [2]]})
    assert [cohort_of(lists, 0, at(round), alike(5)) for round in (1, 2, 3)] == [[3, 1], [2], [3, 1]]


def test_fixed_order_is_that_of_client_ids() -> None:
    cohort = cohort_of(phase(5, "fixed"), 0, at(1), alike(20))
    assert cohort == sorted(cohort_of(phase(5), 0, at(1), alike(20)))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_never_trains_a_client_twice_in_a_row_across_rounds(size: int) -> None:
    plain, other = phase(size), phase(size, "no_repeat")
    last = None
    repeats = 0
    for round in range(1, 200):
        cohort = cohort_of(other, 0, at(round), alike(4), last)
        assert len(set(cohort)) == size
        assert cohort[0] != last
        repeats += cohort_of(plain, 0, at(round), alike(4))[0] == last
        last = cohort[-1]
    assert repeats > 10, "the plain order would have repeated clients"


@pytest.mark.parametrize(
    ("cohort", "order", "message"),
    [
        (11, "sampled", "phases.0.cohort: 11 clients per round, but there are 10"),
        ({"by_size": 11}, "sampled", "phases.0.cohort: 11 clients per round, but there are 10"),
        ({"explicit": [[1], [2, 10]]}, "sampled", "phases.0.cohort: list 1 names client 10; clients are 0 to 9"),
        ({"explicit": [[1, 1]]}, "sampled", "phases.0.cohort: list 0 names a client twice"),
    ],
)
def test_a_cohort_that_cannot_be_is_rejected(cohort: Any, order: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        check_cohort(phase(cohort, order), "phases.0", 10)


def test_no_repeat_needs_two_clients() -> None:
    with pytest.raises(ScenarioError, match="'no_repeat' needs at least two clients"):
        check_cohort(phase(1, "no_repeat"), "phases.0", 1)


def test_no_repeat_does_not_go_with_an_explicit_cohort_of_one() -> None:
    with pytest.raises(ScenarioError, match="'no_repeat' may replace the only client of list 1"):
        check_cohort(phase({"explicit": [[1, 2], [3]]}, "no_repeat"), "phases.0", 10)
