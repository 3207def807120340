"""Minimises a function on the simplex by exponentiated gradient.

Kivinen and Warmuth, "Exponentiated Gradient versus Gradient Descent for Linear Predictors", 1997: every weight is
multiplied by exp(-step * its partial derivative). The step doubles after a success and is halved until there is one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

HALVINGS = 8
INTERIOR = 1e-3
"""Share of uniform weights mixed into a start, since a weight of 0 would stay 0."""

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""The value at some weights, and its gradient."""


def descend(objective: Objective, start: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    """Minimises from a start; the value never increases.

    Args:
        objective: The function to minimise.
        start: [m] weights that add up to 1.
        steps: Largest number of successful steps.

    Returns:
        The weights found, and the value there.
    """
    weights = (1 - INTERIOR) * start + INTERIOR / len(start)
    value, gradient = objective(weights)
    step: float | None = None
    for _ in range(steps):
        inner = gradient - weights @ gradient
        largest = float(np.abs(inner).max())
        if largest == 0:
            break
        step = 1 / largest if step is None else 2 * step
        for _ in range(HALVINGS):
            tried = weights * np.exp(np.clip(-step * inner, -50, 50))
            tried /= tried.sum()
            below, there = objective(tried)
            if below < value:
                weights, value, gradient = tried, below, there
                break
            step /= 2
        else:
            break
    return weights, value
