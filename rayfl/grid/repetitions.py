"""Repeated runs of a cell: over tasks and seeds, and paired with those of another cell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rayfl.grid.results import FinishedRun

LEVEL = 0.95


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
    return _means({(run.task, run.seed): run.value(name) for run in runs})


def paired(runs: Iterable[FinishedRun], others: Iterable[FinishedRun], name: str) -> Interval | None:
    """The mean difference between two cells, with its t-interval over tasks, or over seeds where there are no tasks.

    Only runs that both cells have, of one task and seed, are compared. Differences are averaged over the seeds of a
    task before they are treated as one value, since runs of one task are not independent of each other.

    Args:
        runs: Of one cell.
        others: Of the cell that is subtracted.
        name: Of the figure or metric.

    Returns:
        None where no run has its counterpart.
    """
    of_others = {(run.task, run.seed): run.value(name) for run in others}
    found = {(run.task, run.seed): run.value(name) for run in runs}
    values = _means({key: value - of_others[key] for key, value in found.items() if key in of_others})
    if not values:
        return None
    count = len(values)
    margin = _half_width(values) if count > 1 else None
    return Interval(statistics.fmean(values), margin, count)


def _half_width(values: list[float]) -> float:
    """Of the t-interval around the mean of the values."""
    from scipy.stats import t  # takes long to load, and most tables need none

    quantile = float(t.ppf((1 + LEVEL) / 2, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def _means(values: Mapping[tuple[int | None, int], float]) -> list[float]:
    """One value for each task, in order, or each seed where there are no tasks."""
    groups: dict[tuple[int, int], list[float]] = {}
    for (task, seed), value in sorted(values.items(), key=lambda pair: (pair[0][0] or 0, pair[0][1])):
        groups.setdefault((0, seed) if task is None else (1, task), []).append(value)
    return [statistics.fmean(group) for group in groups.values()]
