"""Client-level DP of a phase (`phases.N.dp`), resolved: plain data that hosts, server and accounting share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rayfl.algorithms.exchange import Part, Released
from rayfl.config.privacy import Quantile

CLIP_NORM = "clip_norm"
"""The server's state that holds an adaptive clipping bound."""

BELOW = "clients below the bound"
"""Name of the sum in which clients report whether they were clipped (-1/2) or not (1/2), for an adaptive bound."""


@dataclass(frozen=True)
class ClientMechanism:
    """Client-level DP of a phase.

    Attributes:
        level: Whether the server (`central`) or each client (`local`) adds the noise.
        noise_multiplier: Standard deviation of the noise as a multiple of `clip_norm`, for everything that a round
            releases.
        clip_norm: C, the bound on a client's contribution; its initial value if it adapts.
        quantile: How the bound adapts, if it does.
        denominator: Divisor of sums, if the number of answers must stay hidden.
        changing: Ranges (start, stop) of a model vector that the phase trains, ascending.
        released: The released parts of clients' answers; empty in a relay, which releases a model.
        secure: Whether noise comes from the operating system.
        fraction_bits: Contributions to a sum are rounded to multiples of 2**-fraction_bits.
    """

    level: Literal["central", "local"]
    noise_multiplier: float
    clip_norm: float
    quantile: Quantile | None
    denominator: float | None
    changing: tuple[tuple[int, int], ...]
    released: Released = field(default_factory=Released)
    secure: bool = False
    fraction_bits: int = 32

    @property
    def vector_noise(self) -> float:
        """The noise multiplier of the vectors.

        With an adaptive bound a round releases the vectors and a count. Together these are one Gaussian mechanism of
        `noise_multiplier` if the vectors have z_delta = (z^-2 - z_b^-2)^(-1/2), with z_b that of the count (Andrew et
        al., theorem 1, where z_b is twice the standard deviation of the count's noise).
        """
        if not self.quantile or not self.noise_multiplier:
            return self.noise_multiplier
        return 1 / math.sqrt(self.noise_multiplier**-2 - self.quantile.noise_multiplier**-2)

    def places(self, part: Part) -> Sequence[tuple[int, int]]:
        """Ranges of the released values in a vector."""
        return [(0, part)] if isinstance(part, int) else self.changing

    @property
    def num_values(self) -> int:
        """Number of values that a client releases in a round."""
        return sum(stop - start for part in self.released.parts.values() for start, stop in self.places(part))

    def bound(self, clip_norm: float) -> float:
        """Bound on the L2 norm of a contribution to the exact sums: C plus the largest rounding error."""
        return clip_norm + math.sqrt(self.num_values) * 2.0 ** -(self.fraction_bits + 1)


def length(part: Part, num_params: int, num_values: int) -> int:
    """Length of a released vector; parameters are the first `num_params` of a model's `num_values` values."""
    return part if isinstance(part, int) else num_params if part == "params" else num_values


@dataclass(frozen=True)
class ClientPlan:
    """Client-level DP of all phases of a run.

    Attributes:
        mechanisms: The mechanism of each phase; None for phases without one.
        delta: The delta of the guarantee.
        accountant: `prv`, `rdp` or `exact`.
        secure: Whether the noise is discrete and comes from the operating system.
    """

    mechanisms: tuple[ClientMechanism | None, ...]
    delta: float
    accountant: str
    secure: bool = False

    @property
    def noise(self) -> list[float | None]:
        """The noise multiplier of each phase."""
        return [None if mechanism is None else mechanism.noise_multiplier for mechanism in self.mechanisms]
