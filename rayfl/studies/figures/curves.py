"""Curves of runs: averaged over neighbouring evaluations, and over the seeds or tasks of a group, with a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rayfl.errors import ScenarioError
from rayfl.studies.statistics import Band, Key, mean_and_band, repetitions


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


@dataclass(frozen=True, eq=False)
class Series:
    """A line and its band.

    Attributes:
        x: float64 [n], ascending.
        mean: float64 [n]; NaN where a run has no finite value.
        low: float64 [n], lower end of the band; the mean where there is no band.
        high: float64 [n], its upper end.
        repetitions: Number of seeds, or of tasks where there are some, that the mean and the band are over.
    """

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    repetitions: int


def series(curves: Mapping[Key, tuple[np.ndarray, np.ndarray]], band: Band) -> Series:
    """The mean of several curves, and its band; see `mean_and_band`.

    Curves whose x differ are interpolated linearly at the x of all of them, from where the last one begins to where the
    first one ends: the mean is of the same runs everywhere. Nothing is interpolated across a missing value.

    Args:
        curves: x and y of every run by task and seed, float64 [n]; x ascends and may be NaN where there is none.
        band: See `Band`.
    """
    known = [_trimmed(x, y) for x, y in curves.values()]
    begin, end = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
    if begin > end:
        raise ScenarioError("x: the runs of a line share no part of this axis, so they have no mean; try --x rounds")
    first = known[0][0]
    if all(np.array_equal(x, first) for x, _ in known):
        x, aligned = first, [y for _, y in known]
    else:
        x = np.unique(np.concatenate([x for x, _ in known]))
        x = x[(x >= begin) & (x <= end)]
        aligned = [_at(x, *curve) for curve in known]
    return Series(x, *mean_and_band(dict(zip(curves, aligned, strict=True)), band), len(repetitions(curves)))


def _trimmed(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A curve from its first value to its last, without the evaluations that have no x."""
    x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    finite = np.flatnonzero(np.isfinite(y))
    if not len(finite):
        raise ScenarioError("metric: a run has no finite value of it along this axis; choose another metric or axis")
    part = slice(finite[0], finite[-1] + 1)
    return x[part], y[part]


def _at(places: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    missing = np.isnan(y)
    values: np.ndarray = np.interp(places, x, np.where(missing, 0.0, y))
    return np.where(np.interp(places, x, missing.astype(np.float64)) > 0, np.nan, values)
