"""Groups of runs compared by one metric: means, differences to a reference, and the cost of reaching a target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rayfl.errors import ScenarioError
from rayfl.figures.groups import Group, Recorded
from rayfl.figures.quantities import Quantity, quantity_of
from rayfl.figures.scores import At, higher_is_better, score
from rayfl.figures.target import Reached, reached
from rayfl.grid.repetitions import Interval, Key, paired_interval, repetition_means


class Choice(NamedTuple):
    """How groups are compared.

    Attributes:
        at: Which rounds scores are taken from.
        window: Evaluated rounds over which curves are smoothed first.
        reference: Label of the groups that the others are compared with; None for none.
        target: Of the first metric, None for none.
    """

    at: At
    window: int
    reference: str | None
    target: float | None


@dataclass(frozen=True)
class Line:
    """A group in a table; scores are in the unit of the records.

    Attributes:
        group: Its runs.
        values: Their finite scores by task and seed.
        difference: To the reference, over the runs of the same task and seed; None where there are none.
        reached: Of the runs that reached the target; None without a target.
    """

    group: Group
    values: Mapping[Key, float]
    difference: Interval | None
    reached: Reached | None

    @property
    def repetitions(self) -> list[float]:
        """A score for each task, averaged over its seeds, or for each seed where there are no tasks."""
        return repetition_means(self.values)

    @property
    def mean(self) -> float | None:
        """The mean score; None if no run has one."""
        return statistics.fmean(self.repetitions) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation; None for a single value."""
        return statistics.stdev(self.repetitions) if len(self.repetitions) > 1 else None


@dataclass(frozen=True)
class Compared:
    """The groups of a column of a grid, or those outside grids, by one metric.

    Attributes:
        metric: Column of metrics.jsonl.
        panel: Label of the column of the grid; empty outside grids.
        quantity: Its words and the unit in which scores are shown.
        higher: Whether higher scores are better; None where it is not known.
        lines: One for each group.
    """

    metric: str
    panel: str
    quantity: Quantity
    higher: bool | None
    lines: tuple[Line, ...]

    @property
    def best(self) -> float | None:
        """The best mean; None where the direction is not known or no group has a score."""
        means = [line.mean for line in self.lines if line.mean is not None]
        return None if self.higher is None or not means else (max if self.higher else min)(means)


def compared(recorded: Recorded, metric: str, choice: Choice) -> list[Compared]:
    """Compares the groups of every panel that has the metric.

    Raises:
        ScenarioError: There is a target, and the direction of the metric is not known.
    """
    runs = [run for run in recorded.runs if metric in run.columns]
    higher, quantity = higher_is_better(metric, runs), quantity_of(runs, metric)
    if choice.target is not None and higher is None:
        raise ScenarioError(
            f"target: rayfl does not know whether higher values of '{metric}' are better; leave the target out"
        )
    found = []
    for panel in recorded.panels:
        groups = recorded.in_panel(panel)
        if any(metric in run.columns for group in groups for run in group.runs):
            lines = tuple(_line(group, groups, metric, higher, choice) for group in groups)
            found.append(Compared(metric, panel, quantity, higher, lines))
    return found


def _line(group: Group, groups: Sequence[Group], metric: str, higher: bool | None, choice: Choice) -> Line:
    values = _scores(group, metric, choice)
    difference = None
    for other in groups:
        if other.label == choice.reference and other is not group:
            difference = paired_interval(values, _scores(other, metric, choice))
    costs = None
    if choice.target is not None and higher is not None:
        costs = reached(group.runs, metric, choice.target, higher, choice.window)
    return Line(group, values, difference, costs)


def _scores(group: Group, metric: str, choice: Choice) -> dict[Key, float]:
    found = {run.key: score(run, metric, choice.at, choice.window) for run in group.runs}
    return {key: value for key, value in found.items() if math.isfinite(value)}
