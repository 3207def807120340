"""Numerical composition of privacy loss random variables: Gopi, Lee and Wutschitz, NeurIPS 2021, by Opacus.

Slow to import: needs Opacus, SciPy and PyTorch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from rayfl.errors import ScenarioError


def prv_epsilon(steps: Sequence[tuple[float, float, int]], delta: float, table: str) -> float:
    """An upper bound on epsilon, within 0.01 of the true one.

    Args:
        steps: (noise multiplier, rate, times) of each Poisson-sampled Gaussian mechanism; noise and rate above 0.
        delta: Of the guarantee.
        table: Whose key `accountant` is to blame in an error: `local.dp` or `dp`.

    Raises:
        ScenarioError: It cannot be computed at this delta.
    """
    from opacus.accountants import PRVAccountant

    composed = PRVAccountant()
    composed.history = list(steps)
    # it warns of what is no news here: an order at the edge of its grid, logarithms of 0 where the rate is 1
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = float(composed.get_epsilon(delta))
        except (RuntimeError, ValueError) as error:
            raise ScenarioError(
                f"{table}: accountant 'prv' cannot compute epsilon at delta = {delta:g} ({error}); use accountant = "
                "'rdp', or a larger delta"
            ) from error
    return max(0.0, found)
