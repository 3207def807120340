"""Statistics over clients against cases computed by hand, in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.tasks.metrics import over_clients as statistics


def over_clients(*arguments: Any, **options: Any) -> Any:
    """`over_clients`, of whose result a test knows whether it is None."""
    return statistics.over_clients(*arguments, **options)


HALVES = [0.5, 1.0, 0.25, 0.5, 0.75]
"""Mean 0.6; deviations -0.1, 0.4, -0.35, -0.1, 0.15."""


@pytest.mark.parametrize(
    ("statistic", "values", "expected"),
    [
        ("mean", HALVES, 0.6),
        ("variance", HALVES, (0.01 + 0.16 + 0.1225 + 0.01 + 0.0225) / 5),
        ("variance", [0.5, 0.5, 0.5], 0.0),
        ("mean", [0.875], 0.875),
        ("variance", [0.875], 0.0),
        ("lowest_10", [0.875], 0.875),
        ("lowest_20", [0.875], 0.875),
        ("lowest_10", HALVES, 0.25),
        ("lowest_20", HALVES, 0.25),
        ("lowest_20", [*HALVES, 0.125], (0.125 + 0.25) / 2),
        ("lowest_10", [0.1 * k for k in range(10, 0, -1)], 0.1),
        ("lowest_20", [0.1 * k for k in range(10, 0, -1)], 0.15),
        ("lowest_10", [0.1 * k for k in range(11)], 0.05),
        ("lowest_10", [*[0.25] * 4, *[0.75] * 26], 0.25),
        ("lowest_20", [*[0.25] * 4, *[0.75] * 26], (4 * 0.25 + 2 * 0.75) / 6),
    ],
)
def test_statistics_are_those_computed_by_hand(statistic: str, values: list[float], expected: float) -> None:
    found = over_clients(statistic, values, [9] * len(values), higher_is_better=True)
    assert found == pytest.approx(expected, abs=1e-15)


def test_of_ties_at_the_border_it_does_not_matter_which_count() -> None:
    values = [0.5, 0.25, 0.5, 0.75, 0.5, 1.0]  # the worst 20 % are two: 0.25 and one of the halves
    for shift in range(6):
        rotated = values[shift:] + values[:shift]
        assert over_clients("lowest_20", rotated, [4] * 6, higher_is_better=True) == 0.375


def test_the_worst_clients_are_the_highest_where_lower_is_better() -> None:
    losses = [0.5, 2.0, 1.0, 0.25, 1.5, 0.125]
    assert over_clients("lowest_10", losses, [4] * 6, higher_is_better=False) == 2.0
    assert over_clients("lowest_20", losses, [4] * 6, higher_is_better=False) == 1.75


def test_corrected_variance_leaves_out_what_test_sets_of_this_size_are_expected_to_add() -> None:
    accuracies, samples = [0.5, 0.75, 1.0], [2, 4, 10]
    spread = (0.25**2 + 0.25**2) / 3
    added = 2 / 3 * (0.5 * 0.5 / 1 + 0.75 * 0.25 / 3 + 0) / 3
    found = over_clients("variance_corrected", accuracies, samples, higher_is_better=True)
    assert found == pytest.approx(spread - added, abs=1e-16)
    assert found < 0, "an estimate of little spread may be negative"


def test_clients_with_one_test_sample_are_in_the_variance_and_not_in_its_correction() -> None:
    found = over_clients("variance_corrected", [1.0, 0.5, 0.0], [1, 5, 1], higher_is_better=True)
    assert found == pytest.approx(0.5 / 3 - 2 / 3 * 0.5 * 0.5 / 4, abs=1e-16)
    assert math.isnan(over_clients("variance_corrected", [1.0, 0.0], [1, 1], higher_is_better=True))


@pytest.mark.parametrize("spread", [0.0, 0.15])
def test_corrected_variance_of_few_clients_is_their_true_variance_on_average(spread: float) -> None:
    rng, clients, repetitions = np.random.default_rng(7), 5, 20_000
    true = 0.7 + spread * np.array([-1, -0.5, 0, 0.5, 1])
    samples = np.array([20, 10, 15, 30, 8])
    found = [
        over_clients("variance_corrected", row.tolist(), samples.tolist(), higher_is_better=True)
        for row in rng.binomial(samples, true, (repetitions, clients)) / samples
    ]
    error = 3 * np.std(found) / np.sqrt(repetitions)
    assert abs(np.mean(found) - np.var(true)) < error < np.mean(true * (1 - true) / samples) / clients


def test_corrected_variance_of_equally_good_clients_is_about_zero_on_average() -> None:
    rng, clients = np.random.default_rng(5), 200
    samples = rng.integers(2, 30, clients)
    plain, corrected = [], []
    for _ in range(200):
        accuracies = (rng.binomial(samples, 0.8) / samples).tolist()
        plain.append(over_clients("variance", accuracies, samples.tolist(), higher_is_better=True))
        corrected.append(over_clients("variance_corrected", accuracies, samples.tolist(), higher_is_better=True))
    expected = float(np.mean(0.8 * 0.2 / samples))
    assert np.mean(plain) == pytest.approx(expected, rel=0.05)
    assert abs(np.mean(corrected)) < 0.05 * expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=50))
def test_values_are_correctly_rounded_and_free_of_the_clients_order(hits: list[int]) -> None:
    values = [number / 40 for number in hits]
    exact = [Fraction(value) for value in values]
    centre = sum(exact) / len(exact)
    assert over_clients("mean", values, hits, higher_is_better=True) == pytest.approx(float(centre), rel=1e-15)
    spread = over_clients("variance", values, hits, higher_is_better=True)
    assert spread == pytest.approx(float(sum((value - centre) ** 2 for value in exact) / len(exact)), abs=1e-15)
    for statistic in ("mean", "variance", "lowest_10", "lowest_20", "variance_corrected"):
        pairs = sorted(zip(values, (number + 2 for number in hits), strict=True))
        one, other = (
            over_clients(statistic, [v for v, _ in order], [n for _, n in order], higher_is_better=True)
            for order in (pairs, pairs[::-1])
        )
        assert one == other


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_not_hidden(broken: float) -> None:
    for statistic in ("mean", "variance", "lowest_10", "lowest_20", "variance_corrected"):
        assert math.isnan(over_clients(statistic, [0.5, broken, 1.0], [4, 4, 4], higher_is_better=True))


@pytest.mark.parametrize("statistic", ["mean", "variance", "lowest_10", "lowest_20", "variance_corrected"])
def test_an_undefined_value_changes_no_statistic(statistic: str) -> None:
    defined = over_clients(statistic, [0.5, 0.25, 1.0], [4, 5, 6], higher_is_better=True)
    found = over_clients(statistic, [None, 0.5, 0.25, None, 1.0], [1, 4, 5, 1, 6], higher_is_better=True)
    assert found == defined
    assert over_clients(statistic, [None, None], [1, 1], higher_is_better=True) is None
