"""How a phase hides its clients (`phases.N.dp`), resolved: what hosts, server and accounts agree on. Plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rayfl.algorithms.exchange import Part, Released
from rayfl.config.privacy import Quantile

CLIP_NORM = "clip_norm"
"""The server's state under which an adapted bound is kept."""

BELOW = "clients below the bound"
"""The sum under which clients say whether they were clipped, where the bound adapts: 1/2 if not, else -1/2."""


@dataclass(frozen=True)
class ClientMechanism:
    """How a phase hides its clients.

    Attributes:
        level: Who adds the noise.
        noise_multiplier: Standard deviation of the noise as a multiple of `clip_norm`, of all that a round releases.
        clip_norm: C, the first bound on a client's contribution where it adapts.
        quantile: How the bound adapts, if it does.
        denominator: What sums are divided by, where it is not the number of answers, which stays hidden.
        changing: Where the values lie in a model vector that the phase trains: (start, stop), ascending.
        released: What clients answer with; empty in a relay, where it is a model.
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

        With an adaptive bound a round releases them and a count. Together these are one Gaussian mechanism of
        `noise_multiplier` if the vectors have z_delta = (z^-2 - z_b^-2)^(-1/2), with z_b that of the count (Andrew et
        al., theorem 1, where z_b is twice the standard deviation of the count's noise).
        """
        if not self.quantile or not self.noise_multiplier:
            return self.noise_multiplier
        return 1 / math.sqrt(self.noise_multiplier**-2 - self.quantile.noise_multiplier**-2)

    def places(self, part: Part) -> Sequence[tuple[int, int]]:
        """Where the values lie in a vector that is released."""
        return [(0, part)] if isinstance(part, int) else self.changing

    @property
    def num_values(self) -> int:
        """Values that a client releases in a round."""
        return sum(stop - start for part in self.released.parts.values() for start, stop in self.places(part))

    def bound(self, clip_norm: float) -> float:
        """The L2 norm of a contribution to the exact sums is at most this: C, and what rounding to the grid can add."""
        return clip_norm + math.sqrt(self.num_values) * 2.0 ** -(self.fraction_bits + 1)


def length(part: Part, num_params: int, num_values: int) -> int:
    """How long a released vector is, where parameters take up the first `num_params` of a model's `num_values`."""
    return part if isinstance(part, int) else num_params if part == "params" else num_values


@dataclass(frozen=True)
class ClientPlan:
    """How the phases of a run hide clients.

    Attributes:
        mechanisms: By phase; None for those that do not.
        delta: Of the guarantee.
        accountant: `prv`, `rdp` or `exact`.
        secure: Whether the noise is discrete, and the operating system's.
    """

    mechanisms: tuple[ClientMechanism | None, ...]
    delta: float
    accountant: str
    secure: bool = False

    @property
    def noise(self) -> list[float | None]:
        """By phase, the noise multiplier."""
        return [None if mechanism is None else mechanism.noise_multiplier for mechanism in self.mechanisms]
