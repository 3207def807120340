"""The grid of `secure` noise: contributions are whole steps, and the noise has a standard deviation of 2^22 steps.

A contribution of norm C is scaled to at most 2^22 / z steps, where z is the noise multiplier, and truncated towards
zero, which never increases its norm. The norm is then checked in integers: sums of squares up to 2^52 are exact in
float64. All releases are therefore integers, their sums are exact, and no rounding happens between a contribution and
its noise. How the released integers become floating-point numbers depends only on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from rayfl.errors import ScenarioError
from rayfl.privacy.discrete_gaussian import SIGMA_BITS

if TYPE_CHECKING:
    from torch import Tensor

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
