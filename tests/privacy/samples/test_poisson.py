"""The samples of each step."""

from __future__ import annotations

import numpy as np
import pytest

from rayfl.config.local import Local
from rayfl.config.privacy import SampleDP
from rayfl.privacy.samples.batches import (
    Seeded,
    expected_batch_size,
    full_passes,
    pass_length,
    poisson_batches,
    sampling_rate,
    shuffled_batches,
)
from rayfl.streams import stream


def chance() -> Seeded:
    return Seeded(stream(3, "batches"))


@pytest.mark.parametrize(
    ("batch_size", "samples", "rate", "divisor"),
    [(10, 40, 0.25, 10), (10, 10, 1.0, 10), (10, 4, 1.0, 4), ("full", 7, 1.0, 7)],
)
def test_the_rate_is_b_over_n_at_most_one_and_the_divisor_is_the_expected_number_of_samples(
    batch_size: int, samples: int, rate: float, divisor: int
) -> None:
    local = Local(batch_size=batch_size)
    assert sampling_rate(local, samples) == rate
    assert expected_batch_size(local, samples) == divisor


def test_every_sample_is_drawn_independently_with_the_rate() -> None:
    steps, samples, expected, rate = 4000, 20, 6, 0.3
    taken = np.zeros((steps, samples))
    for step, places in enumerate(poisson_batches(samples, expected, steps, chance())):
        taken[step, places] = 1
    error = 4 * np.sqrt(rate * (1 - rate) / steps)
    assert np.abs(taken.mean(axis=0) - rate).max() < error
    sizes = taken.sum(axis=1)
    assert abs(sizes.var() - samples * rate * (1 - rate)) < 0.4  # binomial, hence of different sizes
    correlations = np.corrcoef(taken.T) - np.eye(samples)
    assert np.abs(correlations).max() < 5 / np.sqrt(steps)


def test_a_rate_of_one_draws_all_samples_and_a_small_one_sometimes_none() -> None:
    assert all(len(places) == 6 for places in poisson_batches(6, 6, 20, chance()))
    sizes = [len(places) for places in poisson_batches(6, 1, 200, chance())]
    assert 0 in sizes
    assert len(sizes) == 200


def test_shuffled_batches_take_every_sample_once_a_pass() -> None:
    batches = list(shuffled_batches(10, 4, 7, chance()))
    assert [len(places) for places in batches] == [4, 4, 2, 4, 4, 2, 4]
    first, second = np.concatenate(batches[:3]), np.concatenate(batches[3:6])
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)


def test_batches_that_are_not_shuffled_keep_the_order() -> None:
    batches = list(shuffled_batches(5, 3, 3, chance(), shuffle=False))
    assert [list(places) for places in batches] == [[0, 1, 2], [3, 4], [0, 1, 2]]


@pytest.mark.parametrize(
    ("expected", "samples", "memory", "copies", "length"),
    [
        (32, 1000, 64, 1, 40),
        (32, 32, 64, 1, 32),
        (64, 1000, 64, 1, 40),
        (3, 9, 64, 1, 8),
        (32, 1000, 64, 4, 16),
        (9, 30, 1, 1, 1),
    ],
)
def test_passes_have_one_public_length_and_hold_every_sample_once(
    expected: int, samples: int, memory: int, copies: int, length: int
) -> None:
    dp = SampleDP(max_grad_norm=1.0, noise_multiplier=1.0, physical_batch_size=memory, augmentations=copies)
    assert pass_length(dp, expected, samples) == length
    for number in (0, 1, length, length + 1, 3 * length):
        passes = list(full_passes(np.arange(number), length))
        assert all(len(places) == length for places, _ in passes)
        assert [place for places, counted in passes for place in places[:counted]] == list(range(number))
