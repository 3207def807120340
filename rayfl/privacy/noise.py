"""Sources of randomness for private training: a public seed, or the operating system."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np

from rayfl import system_random


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
        """See `Randomness.chosen`."""
        return self._stream.random(size) < expected / size

    def permutation(self, size: int) -> np.ndarray:
        """See `Randomness.permutation`."""
        return self._stream.permutation(size)


class Secure:
    """The operating system's cryptographic source: never repeated, and with exact probabilities."""

    def chosen(self, size: int, expected: int) -> np.ndarray:
        """See `Randomness.chosen`."""
        return system_random.chosen(size, Fraction(expected, size))

    def permutation(self, size: int) -> np.ndarray:
        """See `Randomness.permutation`."""
        return system_random.permutation(size)
