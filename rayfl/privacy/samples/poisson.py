"""Which samples each step of private training takes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rayfl.config.local import Local
from rayfl.config.privacy import SampleDP
from rayfl.local.steps import batch_size
from rayfl.privacy.noise import Randomness

IN_EIGHTS = 8
"""Passes are multiples of this many samples, where so many fit."""


def expected_batch_size(local: Local, num_samples: int) -> int:
    """q n = min(B, n), by which every step divides its sum of gradients.

    It is public, unlike the number of samples that were drawn: neighbours have the same n.
    """
    return batch_size(local, num_samples)


def sampling_rate(local: Local, num_samples: int) -> float:
    """q = min(1, B / n), with which a step draws each sample."""
    return expected_batch_size(local, num_samples) / num_samples


def poisson_batches(num_samples: int, expected: int, steps: int, randomness: Randomness) -> Iterator[np.ndarray]:
    """Yields for every step the places of its samples, each drawn independently: ascending, and possibly none."""
    for _ in range(steps):
        yield np.flatnonzero(randomness.chosen(num_samples, expected))


def shuffled_batches(
    num_samples: int, size: int, steps: int, randomness: Randomness, shuffle: bool = True
) -> Iterator[np.ndarray]:
    """Yields consecutive batches of one shuffled pass after another, as training without privacy takes them."""
    while steps:
        order = randomness.permutation(num_samples) if shuffle else np.arange(num_samples)
        for start in range(0, min(num_samples, steps * size), size):
            yield order[start : start + size]
            steps -= 1


def pass_length(dp: SampleDP, expected: int, num_samples: int) -> int:
    """The number of samples of every pass over a `secure` batch: most batches are one, or as many as memory asks for.

    It is public, like what it follows from. Kernels may round differently for batches of another size, so that with
    passes as long as the batch who else was drawn would move the last bits of a sample's gradient.

    Args:
        dp: Says how many gradients fit, and how many augmented copies each sample has.
        expected: q n.
        num_samples: n.
    """
    most = max(1, dp.physical_batch_size // dp.augmentations)
    usual = expected + math.sqrt(expected * (1 - expected / num_samples))
    return min(most, IN_EIGHTS * math.ceil(usual / math.ceil(usual / most) / IN_EIGHTS))


def full_passes(places: np.ndarray, length: int) -> Iterator[tuple[np.ndarray, int]]:
    """Divides a drawn batch into passes of one length, the last filled up with copies of its first sample.

    Yields:
        The places of a pass, and how many of them count, the first ones.
    """
    for start in range(0, len(places), length):
        part = places[start : start + length]
        yield np.pad(part, (0, length - len(part)), constant_values=part[0]), len(part)
