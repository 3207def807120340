"""Repeated runs of a cell: over tasks and seeds, and paired with those of another cell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rayfl.grid.results import FinishedRun

LEVEL = 0.95

Key = tuple[int | None, int]
"""Task, None where there are none, and seed of a run."""


class Interval(NamedTuple):
    """A mean with the confidence interval around it; without one where there is a single value.

    Attributes:
        mean: Of the values.
        margin: The interval reaches so far to both sides, None for a single value.
        repetitions: Number of values.
    """

    mean: float
    margin: float | None
    repetitions: int


def by_repetition(runs: Iterable[FinishedRun], name: str) -> list[float]:
    """A figure of every repetition: of each task, averaged over its seeds, or of each seed where there are no tasks.

    Args:
        runs: Of one cell.
        name: Of the figure or metric.
    """
    return repetition_means(_by_key(runs, name))


def paired(runs: Iterable[FinishedRun], others: Iterable[FinishedRun], name: str) -> Interval | None:
    """The mean difference of a figure between two cells; see `paired_interval`.

    Args:
        runs: Of one cell.
        others: Of the cell that is subtracted.
        name: Of the figure or metric.
    """
    return paired_interval(_by_key(runs, name), _by_key(others, name))


def paired_interval(values: Mapping[Key, float], others: Mapping[Key, float]) -> Interval | None:
    """The mean difference between two sets of runs, with its t-interval over tasks, or over seeds without tasks.

    Only runs that both sets have, of one task and seed, are compared. Differences are averaged over the seeds of a
    task before they are treated as one value, since runs of one task are not independent of each other.

    Args:
        values: By task and seed.
        others: Those that are subtracted.

    Returns:
        None where no run has its counterpart.
    """
    found = repetition_means({key: value - others[key] for key, value in values.items() if key in others})
    if not found:
        return None
    count = len(found)
    margin = t_quantile(count) * statistics.stdev(found) / math.sqrt(count) if count > 1 else None
    return Interval(statistics.fmean(found), margin, count)


def t_quantile(count: int) -> float:
    """How many standard errors the 95 % t-interval around the mean of two or more values reaches to both sides."""
    from scipy.stats import t  # takes long to load, and most tables need none

    return float(t.ppf((1 + LEVEL) / 2, count - 1))


def repetition_means(values: Mapping[Key, float]) -> list[float]:
    """One value for each task, averaged over its seeds, in order, or each seed where there are no tasks."""
    groups: dict[tuple[int, int], list[float]] = {}
    for (task, seed), value in sorted(values.items(), key=lambda pair: (pair[0][0] or 0, pair[0][1])):
        groups.setdefault((0, seed) if task is None else (1, task), []).append(value)
    return [statistics.fmean(group) for group in groups.values()]


def _by_key(runs: Iterable[FinishedRun], name: str) -> dict[Key, float]:
    return {(run.task, run.seed): run.value(name) for run in runs}
