"""The epsilon of what was spent, by Opacus' accountants. Slow to import: needs Opacus, SciPy and PyTorch.

What is exact and what is a bound: an epsilon by `prv` is Gopi et al.'s upper bound, within 0.01 of the true one; it
takes some 0.2 to 0.8 s for every history that is new. Where there are many, RDP, which NumPy computes for all of them
in seconds, says who has spent the most, and `prv` is computed for those alone. RDP is an upper bound for each client;
an order by RDP need not be that by `prv`, so `maximum` looks at the first few.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from rayfl.errors import ScenarioError
from rayfl.privacy.samples.rdp import epsilons_by_rdp
from rayfl.privacy.samples.spending import Mechanism, Spending, history

Steps = tuple[tuple[float, float, int], ...]
"""(noise multiplier, rate, steps), as Opacus' accountants keep them."""

LARGEST_PRV = 64.0
"""An RDP epsilon above which `prv` is not asked: its grids grow beyond memory and float64, and nothing is private."""

LEADERS = 3
"""Distinct histories, those of the largest RDP, among which the largest epsilon is looked for."""


class Accountant:
    """Computes epsilons at one delta, each history once.

    Args:
        name: `prv` or `rdp`.
        delta: Of the guarantee.
    """

    def __init__(self, name: Literal["prv", "rdp"], delta: float) -> None:
        self.name, self.delta = name, delta

    def epsilon(self, spending: Spending) -> float:
        """The epsilon of one client, of every mechanism that touched its samples.

        Parts that are drawn once and do not overlap compose in parallel: a sample is in one of them, so the epsilon is
        the largest over the parts, each with what is about all samples.

        Returns:
            Infinite where something was released without noise. Above `LARGEST_PRV` it is the RDP bound.

        Raises:
            ScenarioError: The accountant cannot compute it at this delta.
        """
        return max((_epsilon(self.name, self.delta, steps) for steps in _by_part(spending)), default=0.0)

    def bounds(self, spendings: Sequence[Spending]) -> np.ndarray:
        """[spendings] upper bounds by RDP, of any number of clients; those of accountant `rdp` itself."""
        distinct = {history(spending): spending for spending in spendings}
        found = dict(zip(distinct, epsilons_by_rdp(list(distinct.values()), self.delta), strict=True))
        return np.array([found[history(spending)] for spending in spendings])

    def maximum(self, spendings: Sequence[Spending], bounds: np.ndarray | None = None) -> float:
        """The largest epsilon of the `LEADERS` histories that RDP puts first.

        Args:
            spendings: Of each client.
            bounds: Their RDP bounds, where they are known.
        """
        bounds = self.bounds(spendings) if bounds is None else bounds
        leaders: dict[object, float] = {}
        for place in np.argsort(-bounds, kind="stable"):
            known = history(spendings[place])
            if known in leaders:
                continue
            if len(leaders) == LEADERS or not bounds[place]:
                break
            leaders[known] = self.epsilon(spendings[place])
            if math.isinf(leaders[known]):
                break
        return max(leaders.values(), default=0.0)


def _by_part(spending: Spending) -> list[Steps]:
    """What touched the samples of each part."""
    used = [(mechanism, steps) for mechanism, steps in spending.items() if steps]
    parts = {mechanism.part for mechanism, _ in used if mechanism.part} or {""}
    return [_steps([(m, steps) for m, steps in used if m.part in ("", part)]) for part in sorted(parts)]


def _steps(used: Sequence[tuple[Mechanism, int]]) -> Steps:
    steps: dict[tuple[float, float], int] = {}
    for mechanism, number in used:
        key = mechanism.noise_multiplier, mechanism.rate
        steps[key] = steps.get(key, 0) + number
    return tuple((noise, rate, number) for (noise, rate), number in sorted(steps.items()))


@lru_cache(maxsize=1 << 16)
def _epsilon(name: str, delta: float, steps: Steps) -> float:
    if not steps:
        return 0.0
    if any(noise == 0 for noise, _, _ in steps):
        return math.inf
    from opacus.accountants import PRVAccountant, RDPAccountant

    # both warn of what is no news here: an order at the edge of its grid, logarithms of 0 where the rate is 1
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        rdp = RDPAccountant()
        rdp.history = list(steps)
        bound = max(0.0, float(rdp.get_epsilon(delta)))
        if name == "rdp" or bound > LARGEST_PRV:
            return bound
        prv = PRVAccountant()
        prv.history = list(steps)
        try:
            found = float(prv.get_epsilon(delta))
        except (RuntimeError, ValueError) as error:
            raise ScenarioError(
                f"local.dp: accountant 'prv' cannot compute epsilon at delta = {delta:g} ({error}); use accountant = "
                "'rdp', or a larger delta"
            ) from error
    return max(0.0, found)
