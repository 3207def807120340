"""Which samples each step of private training takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rayfl.config.local import Local
from rayfl.local.steps import batch_size
from rayfl.privacy.noise import Randomness


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
