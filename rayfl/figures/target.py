"""When runs first reach a score, and at what cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rayfl.errors import ScenarioError
from rayfl.figures.client_updates import client_updates
from rayfl.figures.quantities import quantity_of
from rayfl.figures.recorded_run import RecordedRun
from rayfl.figures.scores import ranked_values
from rayfl.grid.repetitions import Key, repetition_means


class TargetCost(NamedTuple):
    """A quantity that grows with the rounds.

    Attributes:
        name: `rounds`, `client_updates`, or a column of metrics.jsonl.
        words: The heading of its column in a table.
    """

    name: str
    words: str


TARGET_COSTS = (
    TargetCost("rounds", "rounds"),
    TargetCost("client_updates", "client updates"),
    TargetCost("bytes", "bytes"),
    TargetCost("transfers", "transfers"),
    TargetCost("epsilon", "ε"),
    TargetCost("client_epsilon", "client-level ε"),
    TargetCost("simulated_seconds", "simulated s"),
)


@dataclass(frozen=True)
class Reached:
    """The runs of a group that reached a target.

    Attributes:
        runs: How many runs there are.
        costs: Of each run that reached it, by cost, task and seed; without the costs that are not known.
    """

    runs: int
    costs: Mapping[str, Mapping[Key, float]]

    @property
    def count(self) -> int:
        """How many runs reached it."""
        return len(self.costs["rounds"])

    def mean(self, cost: str) -> float | None:
        """A cost over the runs that reached the target; None if none did, or if it is not known of all of them."""
        found = self.costs.get(cost, {})
        return statistics.fmean(repetition_means(found)) if found and len(found) == self.count else None


def check_target(runs: Sequence[RecordedRun], column: str, target: float) -> None:
    """Checks that a target is in the unit of the records.

    Raises:
        ScenarioError: The metric is a share, and the target is not between 0 and 1.
    """
    known = [run for run in runs if column in run.columns]
    if not 0 <= target <= 1 and quantity_of(known, column).unit == "%":
        percent = f"; for {target:g} %, give {target / 100:g}" if 1 < target <= 100 else ""
        raise ScenarioError(f"target: {column} is a share between 0 and 1 (got {target:g}){percent}")


def reached(runs: Sequence[RecordedRun], column: str, target: float, higher: bool, window: int) -> Reached:
    """Finds the first evaluated round in which each run is at least as good as the target.

    Args:
        runs: Of one group.
        column: The metric.
        target: In the unit of the records.
        higher: Whether higher values are better.
        window: Evaluated rounds over which curves are smoothed first.
    """
    costs: dict[str, dict[Key, float]] = {"rounds": {}}
    for run in runs:
        values = ranked_values(run, column, window)
        good = values >= target if higher else values <= target  # NaN is neither
        if not good.any():
            continue
        place = np.flatnonzero(run.ranked)[int(good.argmax())]
        costs["rounds"][run.key] = float(run.rounds[place])
        updates = client_updates(run)
        known = {**run.columns, **({} if updates is None else {"client_updates": updates})}
        for cost in TARGET_COSTS[1:]:
            if cost.name in known and np.isfinite(value := known[cost.name][place]):
                costs.setdefault(cost.name, {})[run.key] = float(value)
    return Reached(len(runs), costs)
