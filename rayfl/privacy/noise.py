"""Where the randomness of private training comes from, and Gaussian noise: a public seed, or the operating system."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np


class Randomness(Protocol):
    """What batches and noise are drawn from."""

    def normal(self, size: int) -> np.ndarray:
        """[size] float32, standard normal."""

    def uniform(self, size: int) -> np.ndarray:
        """[size] float64 in [0, 1)."""

    def permutation(self, size: int) -> np.ndarray:
        """[size] int64."""


class Seeded:
    """Repeatable, from a stream of the scenario's seed: it hides nothing from who knows the seed."""

    def __init__(self, stream: np.random.Generator) -> None:
        self._stream = stream

    def normal(self, size: int) -> np.ndarray:
        """See `Randomness.normal`."""
        return self._stream.standard_normal(size, dtype=np.float32)

    def uniform(self, size: int) -> np.ndarray:
        """See `Randomness.uniform`."""
        return self._stream.random(size)

    def permutation(self, size: int) -> np.ndarray:
        """See `Randomness.permutation`."""
        return self._stream.permutation(size)


class Secure:
    """From the operating system's cryptographic source, never the same twice.

    A normal number is half the sum of four that the Box-Muller transform made. One alone takes only some of the
    floating-point numbers, which can tell what it was added to (Holohan and Braghin, "Secure Random Sampling in
    Differential Privacy", ESORICS 2021, section 5), which is why Opacus' secure mode sums four too.
    """

    SUMMED = 4

    def normal(self, size: int) -> np.ndarray:
        """See `Randomness.normal`."""
        return self.normal_in_float64(size).astype(np.float32)

    def normal_in_float64(self, size: int) -> np.ndarray:
        """[size] float64, standard normal."""
        pairs = -(-size // 2)
        radii = np.sqrt(-2 * np.log1p(-self.uniform(self.SUMMED * pairs)))
        angles = 2 * np.pi * self.uniform(self.SUMMED * pairs)
        drawn = [(radii * wave(angles)).reshape(self.SUMMED, pairs).sum(axis=0) for wave in (np.cos, np.sin)]
        halved: np.ndarray = np.concatenate(drawn)[:size] / np.sqrt(self.SUMMED)
        return halved

    def uniform(self, size: int) -> np.ndarray:
        """See `Randomness.uniform`."""
        bits: np.ndarray = np.frombuffer(os.urandom(8 * size), np.uint64) >> np.uint64(11)
        return bits * 2.0**-53

    def permutation(self, size: int) -> np.ndarray:
        """See `Randomness.permutation`."""
        return np.argsort(self.uniform(size))


def standard_normal(stream: np.random.Generator | None, number: int) -> np.ndarray:
    """Draws standard normal numbers in float64, as client-level privacy adds them to sums and answers.

    Args:
        stream: A stream of the scenario's seed; None for the operating system's cryptographic source.
        number: How many.

    Returns:
        [number] float64.
    """
    return Secure().normal_in_float64(number) if stream is None else stream.standard_normal(number)
