"""Repeated runs of a cell, over tasks and seeds, and their paired differences to another cell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from rayfl.grid.results import FinishedRun

LEVEL = 0.95

Key = tuple[int | None, int]
"""Task (None in a grid without tasks) and seed of a run."""

Value = TypeVar("Value")


class Interval(NamedTuple):
    """A mean with its confidence interval.

    Attributes:
        mean: The mean of the values.
        margin: Half the width of the interval, None for a single value.
        repetitions: Number of values.
    """

    mean: float
    margin: float | None
    repetitions: int


def by_repetition(runs: Iterable[FinishedRun], name: str) -> list[float]:
    """One value per repetition: per task, averaged over its seeds, or per seed in a grid without tasks.

    Args:
        runs: Runs of one cell.
        name: The figure or metric.
    """
    return repetition_means(_by_key(runs, name))


def paired(runs: Iterable[FinishedRun], others: Iterable[FinishedRun], name: str) -> Interval | None:
    """The mean difference of a figure between two cells; see `paired_interval`.

    Args:
        runs: Runs of one cell.
        others: Runs of the cell to subtract.
        name: The figure or metric.
    """
    return paired_interval(_by_key(runs, name), _by_key(others, name))


def paired_interval(values: Mapping[Key, float], others: Mapping[Key, float]) -> Interval | None:
    """The mean difference between two sets of runs, with its t-interval over tasks, or over seeds without tasks.

    Only runs with a counterpart, of the same task and seed, are compared. Differences are averaged over the seeds of a
    task and then count as one value, since runs of one task are not independent.

    Args:
        values: Values by task and seed.
        others: Values to subtract.

    Returns:
        None if no run has a counterpart.
    """
    found = repetition_means({key: value - others[key] for key, value in values.items() if key in others})
    if not found:
        return None
    count = len(found)
    margin = t_quantile(count) * statistics.stdev(found) / math.sqrt(count) if count > 1 else None
    return Interval(statistics.fmean(found), margin, count)


def t_quantile(count: int) -> float:
    """Half the width of the 95 % t-interval around the mean of two or more values, in standard errors."""
    from scipy.stats import t  # slow to load, and most tables do not need it

    return float(t.ppf((1 + LEVEL) / 2, count - 1))


def repetition_means(values: Mapping[Key, float]) -> list[float]:
    """One value per task, averaged over its seeds, or per seed without tasks, in order."""
    return [statistics.fmean(group) for group in repetitions(values)]


def repetitions(values: Mapping[Key, Value]) -> list[list[Value]]:
    """The values of each task, one per seed, in order; without tasks, each seed by itself."""
    groups: dict[tuple[int, int], list[Value]] = {}
    for (task, seed), value in sorted(values.items(), key=lambda pair: (pair[0][0] or 0, pair[0][1])):
        groups.setdefault((0, seed) if task is None else (1, task), []).append(value)
    return list(groups.values())


def _by_key(runs: Iterable[FinishedRun], name: str) -> dict[Key, float]:
    return {(run.task, run.seed): run.value(name) for run in runs}
