"""Curves averaged over neighbouring evaluations, for plots and for comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rayfl.errors import ScenarioError


def check_smoothing(window: int) -> None:
    """Raises a ScenarioError unless a window has a centre."""
    if window < 1 or window % 2 == 0:
        raise ScenarioError(f"smooth: must be an odd number of evaluated rounds, at least 1 (got {window})")


def smoothed(values: np.ndarray, phases: Sequence[str], window: int) -> np.ndarray:
    """Means over a centred window of evaluations, which reaches neither into another phase nor past a missing value.

    Args:
        values: float64 [n].
        phases: The phase of each of them.
        window: Evaluations in the window; near an end it is as wide as fits symmetrically.

    Returns:
        float64 [n]; NaN where `values` has it.
    """
    half, result = window // 2, values.copy()
    finite = np.isfinite(values)
    names = np.asarray(phases)
    breaks = np.flatnonzero((names[1:] != names[:-1]) | (finite[1:] != finite[:-1])) + 1
    for stretch in np.split(np.arange(len(values)), breaks):
        for place in stretch:
            reach = min(half, place - stretch[0], stretch[-1] - place)
            result[place] = values[place - reach : place + reach + 1].mean()
    return result
