"""Random numbers from the operating system's cryptographic source: exact, and never the same twice."""

from __future__ import annotations

import math
import os
import secrets
from fractions import Fraction

import numpy as np

LARGEST_DENOMINATOR = 2**62
"""Probabilities with a denominator up to this one are exact."""


def uniform(size: int, bits: int) -> np.ndarray:
    """[size] int64, uniform in [0, 2^bits), for at most 63 bits."""
    if not bits:
        return np.zeros(size, np.int64)
    width = next(width for width in (8, 16, 32, 64) if bits <= width)
    drawn = np.frombuffer(os.urandom(size * width // 8), f"u{width // 8}")
    return (drawn >> (width - bits)).astype(np.int64)


def below(bound: int, size: int) -> np.ndarray:
    """[size] int64, uniform in [0, bound), for 0 < bound < 2^63."""
    bits = (bound - 1).bit_length()
    drawn = uniform(size, bits)
    while len(beyond := np.flatnonzero(drawn >= bound)):
        drawn[beyond] = uniform(len(beyond), bits)
    return drawn


def chosen(size: int, probability: Fraction) -> np.ndarray:
    """[size] bool, independently true with this probability, or up to 2^-62 less if its denominator is larger."""
    if probability.denominator > LARGEST_DENOMINATOR:
        probability = Fraction(math.floor(probability * LARGEST_DENOMINATOR), LARGEST_DENOMINATOR)
    return below(probability.denominator, size) < probability.numerator


def permutation(size: int) -> np.ndarray:
    """[size] int64, all orders equally likely."""
    while True:
        keys = uniform(size, 63)
        order = np.argsort(keys)
        if not (np.diff(keys[order]) == 0).any():
            return order


def generator() -> np.random.Generator:
    """A generator for draws that no privacy accounting depends on, such as augmentations."""
    return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
