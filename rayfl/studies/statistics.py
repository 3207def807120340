"""Statistics over repeated runs: means, deviations, paired differences, intervals, and bands around curves.

Values are given by task and seed. Runs of one task are not independent: they are averaged over their seeds, and each
task is one repetition. Without tasks, each seed is one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

import numpy as np

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
    found = [statistics.fmean(seeds) for seeds in repetitions(values)]
    deviation = None
    if len(found) > 1:
        deviation = statistics.stdev(found) if all(map(math.isfinite, found)) else math.nan
    return Summary(statistics.fmean(found), deviation, len(found))


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
