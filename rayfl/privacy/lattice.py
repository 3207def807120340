"""What `secure` noise is added to: contributions in whole steps of a grid whose noise has a standard deviation of 2^22.

A contribution of norm C is scaled to at most 2^22 / z steps, z the noise multiplier, and cut off towards zero, which
lengthens nothing. Its norm is then checked in integers: sums of squares up to 2^52 are exact in float64. So all
releases are integers, their sums are exact, and nothing that is rounded comes between a contribution and its noise. How
the released integers become floating-point numbers depends on them alone.
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
"""The least noise multiplier, with which the largest squared norm is 2^52 steps."""

ROUNDING = 1 - 2.0**-20
"""What contributions are shortened by, so that rounding of their norms in float32 never makes one too long."""


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
        """That a contribution may have, in steps: rounded down, so that the noise is at least z times as large."""
        return int(2**SIGMA_BITS / Fraction(self.noise_multiplier))

    @property
    def step(self) -> float:
        """The size of a step."""
        return self.bound * self.noise_multiplier * 2.0**-SIGMA_BITS

    def in_steps(self, values: Tensor, norms: Tensor) -> Tensor:
        """Clips parts of contributions to the bound and cuts them off to whole steps.

        Args:
            values: [n, values] float32, parts of n contributions.
            norms: [n], of whole contributions.

        Returns:
            [n, values] integers in float64. They may be used of contributions alone that `admits` in whole.

        Raises:
            ScenarioError: The bound is so small that a step is 0.
        """
        if not self.step:
            raise ScenarioError(f"secure: a bound of {self.bound:g} leaves no steps of any size; give a larger one")
        factors = (self.largest_norm * ROUNDING / norms).clamp(max=1 / self.step)
        return (values * factors.unsqueeze(1)).trunc_().double()

    def admits(self, squares: Tensor) -> Tensor:
        """Which contributions are no longer than the bound: all whose norm was finite.

        Args:
            squares: [n] float64, the sums of the squares of all steps of a contribution; exact up to 2^53.

        Returns:
            [n] bool.
        """
        return squares <= self.largest_norm**2  # false of NaN


def check_noise(noise_multiplier: float, key: str) -> None:
    """Checks that there is a grid for this noise.

    Args:
        noise_multiplier: The least of any client.
        key: Where in the scenario it comes from.

    Raises:
        ScenarioError: There is none.
    """
    if noise_multiplier < LEAST_NOISE:
        raise ScenarioError(
            f"{key}: secure noise needs a noise multiplier of at least {LEAST_NOISE:g}, and it is "
            f"{noise_multiplier:.3g}, which hides nothing; use more noise, or leave secure out"
        )
