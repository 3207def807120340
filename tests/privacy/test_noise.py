"""Draws from both sources have the right frequency; only one source is repeatable."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rayfl.privacy.samples.batches import Randomness, Secure, Seeded
from rayfl.streams import stream

NUMBER = 200_001


def sources() -> list[Randomness]:
    return [Secure(), Seeded(stream(1, "noise"))]


def test_seeded_noise_is_standard_normal() -> None:
    drawn = np.sort(Seeded(stream(1, "noise")).normal(NUMBER).astype(np.float64))
    expected = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in drawn])
    distance = np.abs(expected - np.arange(1, NUMBER + 1) / NUMBER).max()
    assert distance < 2.6 / math.sqrt(NUMBER)  # Kolmogorov-Smirnov; exceeded once in 400 000 times


@pytest.mark.parametrize("source", sources(), ids=["secure", "seeded"])
@pytest.mark.parametrize("expected", [0, 1, 70_000, NUMBER])
def test_as_many_are_chosen_as_expected_but_for_chance(source: Randomness, expected: int) -> None:
    chosen = source.chosen(NUMBER, expected)
    rate = expected / NUMBER
    assert chosen.shape == (NUMBER,)
    # six standard deviations; and few are chosen by a Poisson law, which six of them do not bound
    assert abs(chosen.sum() - expected) <= 6 * math.sqrt(NUMBER * rate * (1 - rate)) + 12 * (expected == 1)


@pytest.mark.parametrize("source", sources(), ids=["secure", "seeded"])
def test_a_permutation_has_everybody_once(source: Randomness) -> None:
    order = source.permutation(500)
    assert sorted(order) == list(range(500))
    assert list(order) != list(range(500))


def test_a_seed_repeats_and_the_operating_system_does_not() -> None:
    first, second = (Seeded(stream(1, "noise")).chosen(100, 50) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(Secure().chosen(100, 50), Secure().chosen(100, 50))
