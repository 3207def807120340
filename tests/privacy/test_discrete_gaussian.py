"""Discrete Gaussians have the exact probabilities: by value at small sigmas, and overall at the sigma in use.

They come from the operating system, so no test repeats: each may fail once in ten million runs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from rayfl.privacy import secure_noise as module
from rayfl.privacy.secure_noise import SIGMA_BITS, UNDECIDED, discrete_gaussian

RARE = 1e-7
NUMBER = 400_000


def chi_square(drawn: np.ndarray, values: np.ndarray, chances: np.ndarray) -> float:
    """Returns the p-value of counts for these probabilities; values expected less than 10 times are combined."""
    expected = chances * len(drawn)
    seen = np.array([np.count_nonzero(drawn == value) for value in values], np.float64)
    often = expected >= 10
    observed = np.append(seen[often], len(drawn) - seen[often].sum())
    wanted = np.append(expected[often], len(drawn) - expected[often].sum())
    if wanted[-1] < 1:  # too rare to be tested by a square
        assert observed[-1] < 20
        observed, wanted = observed[:-1], wanted[:-1]
    return float(chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1))


@pytest.mark.parametrize("bits", [0, 1, 2, 3, 5])
def test_every_integer_has_its_exact_probability(bits: int) -> None:
    values = np.arange(-10 * 2**bits, 10 * 2**bits + 1)
    weights = np.exp(-(values**2) / (2 * 4.0**bits))
    assert chi_square(discrete_gaussian(NUMBER, bits), values, weights / weights.sum()) > RARE


def test_at_the_sigma_in_use_it_looks_normal_from_afar_and_uniform_from_nearby() -> None:
    drawn = discrete_gaussian(NUMBER)
    assert drawn.dtype == np.int64
    assert len(drawn) == NUMBER
    assert kstest(drawn / 2.0**SIGMA_BITS, "norm").pvalue > RARE
    for modulus in (2, 3, 16, 101):
        assert chi_square(drawn % modulus, np.arange(modulus), np.full(modulus, 1 / modulus)) > RARE


@pytest.mark.parametrize("size", [0, 1, 7, 300_001])
def test_as_many_are_drawn_as_asked_and_never_the_same(size: int) -> None:
    first, second = discrete_gaussian(size), discrete_gaussian(size)
    assert len(first) == size
    assert size < 7 or not np.array_equal(first, second)


def test_the_first_bits_decide_k_almost_always_and_are_right_where_they_do() -> None:
    numbers = np.arange(2**16)
    decided = module._first_bits()
    undecided = np.count_nonzero(decided == UNDECIDED)
    assert 0 < undecided < 20
    weights = np.exp(-(np.arange(12.0) ** 2) / 2)
    bounds = np.cumsum(weights) / weights.sum() * 2**16
    lower, upper = np.searchsorted(bounds, numbers + 1e-6), np.searchsorted(bounds, numbers + 1 - 1e-6)
    known = decided != UNDECIDED
    assert np.array_equal(lower[known], upper[known])
    assert np.array_equal(decided[known], lower[known])


def test_where_the_first_bits_do_not_decide_further_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.exp(-(np.arange(12.0) ** 2) / 2)
    boundary = int(2**16 / weights.sum())  # the chance of 0 lies within this number's bits
    assert module._first_bits()[boundary] == UNDECIDED
    for rest, k in ((b"\x00" * 8, 0), (b"\xff" * 8, 1)):
        monkeypatch.setattr(module, "uniform", lambda size, bits: np.full(size, boundary))
        monkeypatch.setattr("os.urandom", lambda number, rest=rest: rest)
        assert module._half_normal(3).tolist() == [k] * 3


@pytest.mark.parametrize(("numerator", "bits"), [(0, 4), (3, 4), (16, 4), (2**22 - 5, 22), (2**40, 45)])
def test_chances_of_a_decay_are_exponentials(numerator: int, bits: int) -> None:
    chance = math.exp(-numerator / 2**bits)
    happened = module._decays(np.full(NUMBER, numerator), bits).sum()
    assert abs(happened - chance * NUMBER) <= 6 * math.sqrt(NUMBER * chance * (1 - chance))


@pytest.mark.parametrize(("numerator", "bits"), [(1, 3), (2**16 + 1, 20), (2**17 - 1, 17), (0, 45), (2**45, 45)])
def test_ties_of_the_first_bits_are_decided_by_the_others(numerator: int, bits: int) -> None:
    chance = numerator / 2**bits
    less = module._less(np.full(NUMBER, numerator), bits).sum()
    assert abs(less - chance * NUMBER) <= 6 * math.sqrt(NUMBER * chance * (1 - chance))


def test_a_tie_takes_the_next_bits_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def tied(size: int, bits: int) -> np.ndarray:
        return np.full(size, 5 if bits == 16 else 6)

    monkeypatch.setattr(module, "uniform", tied)
    assert module._less(np.array([5 * 16 + 7, 5 * 16 + 6, 6 * 16, 5 * 16]), 20).tolist() == [True, False, True, False]
