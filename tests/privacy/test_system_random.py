"""Draws from the operating system, which are not repeatable: each test may fail once in ten million runs."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chi2

from rayfl.privacy import secure_noise as system_random
from rayfl.privacy.secure_noise import AT_ONCE, below, chosen, permutation, sample

NUMBER = 100_000


@pytest.mark.parametrize("bound", [1, 2, 3, 60_000, 2**40 + 1])
def test_integers_below_a_bound_are_uniform(bound: int) -> None:
    drawn = below(bound, NUMBER)
    assert drawn.min() >= 0
    assert drawn.max() < bound
    assert abs(drawn.mean() - (bound - 1) / 2) <= 6 * bound / math.sqrt(12 * len(drawn))


def chi_square(seen: list[int], chances: list[float]) -> float:
    expected = np.array(chances) * sum(seen)
    return float(chi2.sf(((np.array(seen) - expected) ** 2 / expected).sum(), len(seen) - 1))


@pytest.mark.parametrize("probability", [Fraction(1, 3), Fraction(0.1), Fraction(0.7), Fraction(999, 1000)])
def test_so_many_are_chosen(probability: Fraction) -> None:
    seen = int(chosen(NUMBER, probability).sum())
    assert chi_square([seen, NUMBER - seen], [float(probability), 1 - float(probability)]) > 1e-7


def test_the_surest_and_the_rarest_are_never_missed_and_never_chosen() -> None:
    assert chosen(1000, Fraction(1)).all()
    assert not chosen(1000, Fraction(0)).any()
    assert not chosen(1000, Fraction(1e-300)).any()


def test_a_probability_of_too_many_digits_is_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    rare = Fraction(1e-17)
    rounded = Fraction(math.floor(rare * 2**62), 2**62)
    assert 0 < rounded < rare
    monkeypatch.setattr(system_random, "uniform", lambda size, bits: rounded.numerator - np.array([1, 0])[:size])
    assert chosen(2, rare).tolist() == [True, False]


def test_every_order_is_equally_likely() -> None:
    seen = Counter(tuple(permutation(3)) for _ in range(6000))
    assert chi_square([seen[order] for order in permutations(range(3))], [1 / 6] * 6) > 1e-7
    assert len(permutation(0)) == 0


@pytest.mark.parametrize("number", [1, 2])
def test_every_sample_in_every_order_is_equally_likely(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_random, "AT_ONCE", 1)
    seen = Counter(tuple(sample(5, number)) for _ in range(2000))
    every = list(permutations(range(5), number))
    assert chi_square([seen[numbers] for numbers in every], [1 / len(every)] * len(every)) > 1e-7
    assert len(sample(5, 0)) == 0


def test_a_draw_for_each_of_many_takes_the_memory_of_a_part() -> None:
    many = 16 * AT_ONCE
    tracemalloc.start()
    try:
        assert len(sample(many, 10)) == 10
        assert chosen(many, Fraction(1, 3)).nbytes == many
        assert tracemalloc.get_traced_memory()[1] < 4 * many
    finally:
        tracemalloc.stop()


def test_orders_by_equal_keys_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter([np.array([5, 7, 5]), np.array([2, 1, 3])])
    monkeypatch.setattr(system_random, "uniform", lambda size, bits: next(keys))
    assert permutation(3).tolist() == [1, 0, 2]
