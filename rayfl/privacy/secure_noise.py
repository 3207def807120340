"""The exact noise of `secure`: discrete Gaussian samples, the grid of contributions, and the system's random numbers.

The random numbers come from the operating system's cryptographic source, never the same twice.

The samples: P(x) is proportional to exp(-x^2 / (2 sigma^2)) for every integer x (Canonne, Kamath and Steinke, "The
Discrete Gaussian for Differential Privacy", NeurIPS 2020). The method is Karney's ("Sampling Exactly from the Normal
Distribution", ACM TOMS 2016, algorithm D), with a sigma that is a power of two: |x| = k sigma + j, k of probability
proportional to exp(-k^2 / 2), j uniform below sigma, and the pair is kept with probability exp(-j (2 k sigma + j) / (2
sigma^2)).

No decision depends on a rounded number. Events of probability exp(-a / 2^n) use von Neumann's method, which compares
random integers with a. The cumulative probabilities of k are irrational: bits of a uniform number are drawn until they
determine between which two of them it lies, and the probabilities are computed to more digits than that.

The grid: the noise has a standard deviation of 2^22 steps. A contribution of norm C is scaled to at most 2^22 / z
steps, where z is the noise multiplier, and truncated towards zero, which never increases its norm. The norm is then
checked in integers: sums of squares up to 2^52 are exact in float64. All releases are therefore integers, their sums
are exact, and no rounding happens between a contribution and its noise. How the released integers become floating-point
numbers depends only on them."""

from __future__ import annotations

import math
import os
import secrets
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from torch import Tensor


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
    decided = np.empty(size, bool)
    for first in range(0, size, AT_ONCE):
        block = decided[first : first + AT_ONCE]
        block[:] = below(probability.denominator, len(block)) < probability.numerator
    return decided


def permutation(size: int) -> np.ndarray:
    """[size] int64, all orders equally likely."""
    return sample(size, size)


def sample(size: int, number: int) -> np.ndarray:
    """[number] int64, different numbers in [0, size): all choices and orders equally likely.

    Every number draws a key, and the smallest keys count. Those of a part are in memory at once.
    """
    while True:
        keys, numbers = np.empty(0, np.int64), np.empty(0, np.int64)
        for first in range(0, size, AT_ONCE + number):
            drawn = uniform(min(AT_ONCE + number, size - first), 63)
            small = np.flatnonzero(drawn <= keys[-1]) if len(keys) > number else np.arange(len(drawn))
            keys, numbers = np.append(keys, drawn[small]), np.append(numbers, first + small)
            order = np.argsort(keys)[: number + 1]  # the next one too, which an equal key would let change places
            keys, numbers = keys[order], numbers[order]
        if not (np.diff(keys) == 0).any():
            return numbers[:number]


def generator() -> np.random.Generator:
    """A generator for draws that no privacy accounting depends on, such as augmentations."""
    return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))


SIGMA_BITS = 22
"""By default sigma is 2^22."""

AT_ONCE = 1 << 18
"""Candidates at a time: arrays of 2 MiB."""

UNDECIDED = -1


def discrete_gaussian(size: int, sigma_bits: int = SIGMA_BITS) -> np.ndarray:
    """Draws independent integers of mean 0 and sigma = 2^sigma_bits from the operating system's cryptographic source.

    Args:
        size: How many.
        sigma_bits: From 0 to 30.

    Returns:
        [size] int64.
    """
    drawn, missing = [np.empty(0, np.int64)], size
    while missing:
        drawn.append(_tried(min(missing * 3 // 2 + 8, AT_ONCE), sigma_bits)[:missing])
        missing -= len(drawn[-1])
    return np.concatenate(drawn)


def _tried(size: int, sigma_bits: int) -> np.ndarray:
    """Returns the accepted ones of this many candidates, about 71 %."""
    k = _half_normal(size)
    drawn = uniform(size, sigma_bits + 1)
    negative, j = drawn >> sigma_bits == 1, drawn & (2**sigma_bits - 1)
    accepted = _decays(j * j, 2 * sigma_bits + 1) & ~(negative & (k == 0) & (j == 0))  # zero has one sign
    remaining = np.where(accepted, k, 0)
    while len(places := np.flatnonzero(remaining)):
        again = _decays(j[places], sigma_bits)
        accepted[places] = again
        remaining[places] = np.where(again, remaining[places] - 1, 0)
    values: np.ndarray = (k << sigma_bits) + j
    values[negative] *= -1
    chosen: np.ndarray = values[accepted]
    return chosen


def _decays(numerators: np.ndarray, bits: int) -> np.ndarray:
    """[n] bool, each true with probability exp(-numerator / 2^bits), for numerators in [0, 2^bits].

    Von Neumann: in a sequence of trials with probabilities x / 1, x / 2, x / 3, ..., the first failure is at an odd
    position with probability exp(-x).
    """
    outcome = np.empty(len(numerators), bool)
    places, number = np.arange(len(numerators)), 1
    while len(places):
        goes_on = _less(numerators[places], bits)
        goes_on[goes_on] = below(number, int(goes_on.sum())) == 0
        outcome[places[~goes_on]] = number % 2 == 1
        places, number = places[goes_on], number + 1
    return outcome


def _less(numerators: np.ndarray, bits: int) -> np.ndarray:
    """[n] bool, each true with probability numerator / 2^bits: whether that many random bits form a smaller
    number.

    The first 16 bits decide, except once in 65536 times.
    """
    remaining_bits = max(bits - 16, 0)
    tops = numerators >> remaining_bits
    drawn = uniform(len(numerators), bits - remaining_bits)
    less: np.ndarray = drawn < tops
    if remaining_bits and len(ties := np.flatnonzero(drawn == tops)):
        less[ties] = _less(numerators[ties] & (2**remaining_bits - 1), remaining_bits)
    return less


def _half_normal(size: int) -> np.ndarray:
    """[size] int64 k, of probability proportional to exp(-k^2 / 2) for k >= 0."""
    drawn = uniform(size, 16)
    k: np.ndarray = _first_bits()[drawn]
    for place in np.flatnonzero(k == UNDECIDED):
        number, bits = int(drawn[place]), 16
        while k[place] == UNDECIDED:
            number, bits = number << 64 | int.from_bytes(os.urandom(8), "little"), bits + 64
            k[place] = _decided(number, bits)
    return k


@lru_cache(maxsize=1)
def _first_bits() -> np.ndarray:
    """[2^16] int64, the k determined by the first bits of a uniform number."""
    return np.array([_decided(number, 16) for number in range(2**16)], np.int64)


def _decided(number: int, bits: int) -> int:
    """The k of all uniform numbers that start with these bits; `UNDECIDED` if they have more than one."""
    thresholds = _thresholds(bits)
    surely = sum(threshold + 2 <= number for threshold in thresholds)
    perhaps = sum(threshold - 1 < number + 1 for threshold in thresholds)
    return surely if surely == perhaps else UNDECIDED


@lru_cache(maxsize=4)
def _thresholds(bits: int) -> list[int]:
    """The probabilities of at most k, from k = 0, in units of 2^-bits, within one; all others are that close to 1."""
    with localcontext() as context:
        context.prec = bits // 3 + 30
        weights = [(Decimal(-k * k) / 2).exp() for k in range(isqrt(2 * bits) + 4)]
        return [int(sum_ / sum(weights) * 2**bits) for sum_ in accumulate(weights)]


LEAST_NOISE = 1 / 16
"""The smallest noise multiplier, with which the largest squared norm is 2^52 steps."""

ROUNDING = 1 - 2.0**-20
"""Shortens contributions, so that rounding of their norms in float32 never makes one too long."""


@dataclass(frozen=True)
class Lattice:
    """A grid for contributions of bounded norm.

    Attributes:
        noise_multiplier: z, of the account.
        bound: C, of the contributions, in their own units.
    """

    noise_multiplier: float
    bound: float

    @property
    def largest_norm(self) -> int:
        """The largest norm of a contribution, in steps; rounded down, so the noise is at least z times as large."""
        return int(2**SIGMA_BITS / Fraction(self.noise_multiplier))

    @property
    def step(self) -> float:
        """The size of a step."""
        return self.bound * self.noise_multiplier * 2.0**-SIGMA_BITS

    def in_steps(self, values: Tensor, norms: Tensor) -> Tensor:
        """Clips parts of contributions to the bound and truncates them to whole steps.

        Args:
            values: float32 [n, values], parts of n contributions.
            norms: [n], the norms of the whole contributions.

        Returns:
            [n, values], integers in float64. Use only those of contributions that `admits` accepts as a whole.

        Raises:
            ScenarioError: The bound is so small that a step is 0.
        """
        if not self.step:
            raise ScenarioError(f"secure: with a bound of {self.bound:g} the grid has step 0; use a larger bound")
        factors = (self.largest_norm * ROUNDING / norms).clamp(max=1 / self.step)
        return (values * factors.unsqueeze(1)).trunc_().double()

    def admits(self, squares: Tensor) -> Tensor:
        """Returns which contributions are within the bound: all whose norm was finite.

        Args:
            squares: float64 [n], the sums of squared steps of each contribution; exact up to 2^53.

        Returns:
            bool [n].
        """
        return squares <= self.largest_norm**2  # false for NaN


def check_noise(noise_multiplier: float, key: str) -> None:
    """Checks that a grid exists for this noise.

    Args:
        noise_multiplier: The smallest noise multiplier of any client.
        key: The scenario key that it comes from.

    Raises:
        ScenarioError: There is none.
    """
    if noise_multiplier < LEAST_NOISE:
        raise ScenarioError(
            f"{key}: secure noise needs a noise multiplier of at least {LEAST_NOISE:g}, but it is "
            f"{noise_multiplier:.3g}, which hides nothing; use more noise, or leave secure out"
        )
