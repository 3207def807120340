"""Noise and draws: standard normal from both sources, repeatable from one of them only."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rayfl.privacy.noise import Randomness, Secure, Seeded
from rayfl.streams import stream

NUMBER = 200_001


def sources() -> list[Randomness]:
    return [Secure(), Seeded(stream(1, "noise"))]


@pytest.mark.parametrize("source", sources(), ids=["secure", "seeded"])
def test_noise_is_standard_normal(source: Randomness) -> None:
    drawn = np.sort(source.normal(NUMBER).astype(np.float64))
    assert len(drawn) == NUMBER
    expected = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in drawn])
    distance = np.abs(expected - np.arange(1, NUMBER + 1) / NUMBER).max()
    assert distance < 2.6 / math.sqrt(NUMBER)  # Kolmogorov-Smirnov; exceeded once in 400 000 times


def test_secure_noise_does_not_repeat_within_a_draw() -> None:
    drawn = Secure().normal(1001)
    assert drawn.dtype == np.float32
    assert abs(np.corrcoef(drawn[:500], drawn[501:1001])[0, 1]) < 0.25
    assert len(np.unique(drawn)) > 990


@pytest.mark.parametrize("source", sources(), ids=["secure", "seeded"])
def test_uniform_numbers_fill_the_unit_interval(source: Randomness) -> None:
    drawn = np.sort(source.uniform(NUMBER))
    assert drawn[0] >= 0
    assert drawn[-1] < 1
    assert np.abs(drawn - np.arange(1, NUMBER + 1) / NUMBER).max() < 2.6 / math.sqrt(NUMBER)


@pytest.mark.parametrize("source", sources(), ids=["secure", "seeded"])
def test_a_permutation_has_everybody_once(source: Randomness) -> None:
    order = source.permutation(500)
    assert sorted(order) == list(range(500))
    assert list(order) != list(range(500))


def test_a_seed_repeats_and_the_operating_system_does_not() -> None:
    first, second = (Seeded(stream(1, "noise")).normal(10) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(Secure().normal(10), Secure().normal(10))
