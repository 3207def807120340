"""The samples of each step of private training, and their randomness: a public seed, or the operating system."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Protocol

import numpy as np

from rayfl.config.local import Local
from rayfl.config.privacy import SampleDP
from rayfl.local.steps import batch_size
from rayfl.privacy import secure_noise as system_random


class Randomness(Protocol):
    """The source from which batches are drawn."""

    def chosen(self, size: int, expected: int) -> np.ndarray:
        """[size] bool, each true with probability expected / size, independently."""

    def permutation(self, size: int) -> np.ndarray:
        """[size] int64."""


class Seeded:
    """Repeatable randomness from a stream of the scenario's seed; it hides nothing from anyone who knows the seed."""

    def __init__(self, stream: np.random.Generator) -> None:
        self._stream = stream

    def normal(self, size: int) -> np.ndarray:
        """[size] float32, standard normal."""
        return self._stream.standard_normal(size, dtype=np.float32)

    def chosen(self, size: int, expected: int) -> np.ndarray:
        return self._stream.random(size) < expected / size

    def permutation(self, size: int) -> np.ndarray:
        return self._stream.permutation(size)


class Secure:
    """The operating system's cryptographic source: never repeated, and with exact probabilities."""

    def chosen(self, size: int, expected: int) -> np.ndarray:
        return system_random.chosen(size, Fraction(expected, size))

    def permutation(self, size: int) -> np.ndarray:
        return system_random.permutation(size)


IN_EIGHTS = 8
"""Passes contain a multiple of this many samples, if that many fit."""


def expected_batch_size(local: Local, num_samples: int) -> int:
    """Returns q n = min(B, n), by which every step divides its sum of gradients.

    It is public, unlike the number of samples that were drawn: neighbours have the same n.
    """
    return batch_size(local, num_samples)


def sampling_rate(local: Local, num_samples: int) -> float:
    """Returns q = min(1, B / n), the probability with which a step draws each sample."""
    return expected_batch_size(local, num_samples) / num_samples


def poisson_batches(num_samples: int, expected: int, steps: int, randomness: Randomness) -> Iterator[np.ndarray]:
    """Yields the positions of every step's samples, each drawn independently: ascending, and possibly none."""
    for _ in range(steps):
        yield np.flatnonzero(randomness.chosen(num_samples, expected))


def shuffled_batches(
    num_samples: int, size: int, steps: int, randomness: Randomness, shuffle: bool = True
) -> Iterator[np.ndarray]:
    """Yields consecutive batches of one shuffled pass after another, as in training without privacy."""
    while steps:
        order = randomness.permutation(num_samples) if shuffle else np.arange(num_samples)
        for start in range(0, min(num_samples, steps * size), size):
            yield order[start : start + size]
            steps -= 1


def pass_length(dp: SampleDP, expected: int, num_samples: int) -> int:
    """Returns the number of samples in every pass over a `secure` batch.

    Most batches take one pass, or as many as memory requires. The number is public, since it follows from public
    numbers. Kernels may round differently for other batch sizes; if passes were as long as the batch, the other samples
    drawn would affect the last bits of a sample's gradient.

    Args:
        dp: Says how many gradients fit, and how many augmented copies each sample has.
        expected: q n.
        num_samples: n.
    """
    most = max(1, dp.physical_batch_size // dp.augmentations)
    usual = expected + math.sqrt(expected * (1 - expected / num_samples))
    return min(most, IN_EIGHTS * math.ceil(usual / math.ceil(usual / most) / IN_EIGHTS))


def full_passes(places: np.ndarray, length: int) -> Iterator[tuple[np.ndarray, int]]:
    """Divides a drawn batch into passes of equal length; the last is padded with copies of its first sample.

    Yields:
        The positions of a pass, and how many of them count, starting from the first.
    """
    for start in range(0, len(places), length):
        part = places[start : start + length]
        yield np.pad(part, (0, length - len(part)), constant_values=part[0]), len(part)
