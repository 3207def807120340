"""Statistics over repeated runs: means, deviations, paired differences, intervals, and bands around curves.

Values are given by task and seed. Runs of one task are not independent: they are averaged over their seeds, and each
task is one repetition. Without tasks, each seed is one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from rayfl.errors import ScenarioError
from rayfl.runs.figures.quantities import Series

LEVEL = 0.95
"""Confidence of intervals."""

Key = tuple[int | None, int]
"""Task (None in a grid without tasks) and seed of a run."""

Value = TypeVar("Value")

Band = Literal["std", "range", "interval", "none"]
"""The band around a mean: one sample standard deviation, least to largest, 95 % confidence interval, or none."""


class Summary(NamedTuple):
    """Values over repetitions.

    Attributes:
        mean: Their mean.
        deviation: Their sample standard deviation, None for a single one; NaN if one is not finite.
        repetitions: Number of values.
    """

    mean: float
    deviation: float | None
    repetitions: int

    @property
    def margin(self) -> float | None:
        """Half the width of the t-interval around the mean, None for a single value."""
        if self.deviation is None:
            return None
        return t_quantile(self.repetitions) * self.deviation / math.sqrt(self.repetitions)


def repetitions(values: Mapping[Key, Value]) -> list[list[Value]]:
    """The values of each task, one per seed, in order; without tasks, each seed by itself."""
    groups: dict[tuple[int, int], list[Value]] = {}
    for (task, seed), value in sorted(values.items(), key=lambda pair: (pair[0][0] or 0, pair[0][1])):
        groups.setdefault((0, seed) if task is None else (1, task), []).append(value)
    return list(groups.values())


def summary(values: Mapping[Key, float]) -> Summary | None:
    """Mean and deviation over tasks, each averaged over its seeds, or over seeds without tasks; None without values."""
    if not values:
        return None
    means = [statistics.fmean(seeds) for seeds in repetitions(values)]
    deviation = None
    if len(means) > 1:
        deviation = statistics.stdev(means) if all(map(math.isfinite, means)) else math.nan
    return Summary(statistics.fmean(means), deviation, len(means))


def paired_difference(values: Mapping[Key, float], others: Mapping[Key, float]) -> Summary | None:
    """Summarises differences between runs of the same task and seed.

    Args:
        values: Values by task and seed.
        others: Values to subtract; those without a counterpart are left out.

    Returns:
        None if no run has a counterpart.
    """
    return summary({key: value - others[key] for key, value in values.items() if key in others})


def t_quantile(count: int) -> float:
    """Half the width of the 95 % t-interval around the mean of two or more values, in standard errors."""
    from scipy.stats import t  # slow to load, and most tables do not need it

    return float(t.ppf((1 + LEVEL) / 2, count - 1))


def mean_and_band(curves: Mapping[Key, np.ndarray], band: Band) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of curves over tasks, each averaged over its seeds, or over seeds without tasks, and its band.

    Args:
        curves: float64 [n] by task and seed.
        band: See `Band`.

    Returns:
        float64 [n] each: the mean, which is NaN where a curve is, and the lower and the upper end of the band, which
        are the mean where there is no band.
    """
    values = np.stack([np.mean(seeds, axis=0) for seeds in repetitions(curves)])
    mean, count = values.mean(axis=0), len(values)
    if band == "none" or count == 1:
        return mean, mean, mean
    if band == "range":
        return mean, values.min(axis=0), values.max(axis=0)
    reach = values.std(axis=0, ddof=1)
    if band == "interval":
        reach = t_quantile(count) * reach / math.sqrt(count)
    return mean, mean - reach, mean + reach


def check_smoothing(window: Any) -> None:
    """Raises a ScenarioError unless a window has a centre."""
    if not isinstance(window, Integral) or window < 1 or window % 2 == 0:
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
