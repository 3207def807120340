"""Warnings before a run, and explanations of a large epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rayfl.local.spending import Spending

LARGE = 10.0
"""An epsilon above which the output explains why it is large."""


def notes(
    sizes: np.ndarray, delta: float, epsilon: float | None, costliest: Callable[[], tuple[int, Spending] | None]
) -> list[str]:
    """Returns warnings and explanations, one line each.

    Args:
        sizes: [clients] training samples of each.
        delta: Delta of the guarantee.
        epsilon: The largest of any client at the end of the run; None if no accountant covers it.
        costliest: Finds the client that will have spent the most, and its spending.
    """
    samples, found = int(sizes.sum()), []
    if delta > 1 / samples:
        found.append(
            f"local.dp.delta = {delta:g} is above 1 / ({samples:,} training samples): a mechanism may fully "
            f"reveal a sample with that probability; use at most {10 ** math.floor(-math.log10(samples)):g}"
        )
    if epsilon is not None and LARGE < epsilon < math.inf and (worst := costliest()) is not None:
        client, spent = worst
        rate = max((mechanism.rate for mechanism in spent), default=0.0)
        found.append(
            f"the largest epsilon is client {client}'s: a step draws each of its {sizes[client]:,} training "
            f"samples with rate {rate:.3g}, which hides little; fewer steps, smaller batches, more noise or larger "
            "clients make it smaller"
        )
    if epsilon == math.inf:
        found.append("noise_multiplier = 0 hides nothing: epsilon is infinite, and this run gives no guarantee")
    return found
