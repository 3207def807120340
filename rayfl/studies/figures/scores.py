"""The score by which a run is compared: after its last round, in its best, over its last five, or after another.

And when runs first reach a score, and at what cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from rayfl.engine.plan.headline import PART, label_in, statistic_over_clients
from rayfl.errors import ScenarioError
from rayfl.runs.figures.recorded_run import RecordedRun, client_updates
from rayfl.studies.grid.results import TAIL
from rayfl.studies.statistics import Key, smoothed, summary

WORDS = {
    "last": "after the last round",
    "best": "in the round with the best headline metric",
    "mean_last_5": f"mean of the last {TAIL} evaluated rounds",
}

At = Literal["last", "best", "mean_last_5"] | int
"""Which rounds a score is taken from; a number is a round."""

LOWER_IS_BETTER = (
    "bytes",
    "bytes_down",
    "bytes_up",
    "client_epsilon",
    "dropped",
    "energy_joules",
    "epsilon",
    "late",
    "seconds",
    "simulated_seconds",
    "transfers",
    "unavailable",
)
"""Columns that belong to no metric and whose lower values are better."""


def words_of(at: At, runs: Iterable[RecordedRun]) -> str:
    """The rounds that a score is taken from, for a reader; of short runs `mean_last_5` has fewer than five."""
    counts = {min(TAIL, int(run.ranked.sum())) for run in runs} if at == "mean_last_5" else {TAIL}
    if counts != {TAIL}:
        return f"mean of the last {' to '.join(map(str, sorted({min(counts), max(counts)})))} evaluated rounds"
    return WORDS.get(str(at), f"after round {at}")


def ranked_values(run: RecordedRun, column: str, window: int) -> np.ndarray:
    """The values of a column in the rounds that the headline metric ranks, smoothed; NaN where the run has none."""
    values = run.columns.get(column, np.full(len(run.rounds), np.nan))
    ranked: np.ndarray = smoothed(values, run.phase_names, window)[run.ranked]
    return ranked


def score(run: RecordedRun, column: str, at: At, window: int = 1) -> float:
    """A score of a run, in the unit of its records.

    Args:
        run: The run.
        column: A column of metrics.jsonl.
        at: Which rounds it is taken from. `best` is the round in which the headline metric is best, for other columns
            too.
        window: Evaluated rounds over which curves are smoothed first.

    Returns:
        NaN if the run has no finite value there.
    """
    values = ranked_values(run, column, window)
    if not len(values):
        return float("nan")
    match at:
        case "last":
            return float(values[-1])
        case "mean_last_5":
            return float(values[-TAIL:].mean())
        case "best":
            place = _best_place(run, window)
            return float("nan") if place is None else float(values[place])
        case _:
            (places,) = np.nonzero(run.rounds[run.ranked] == at)
            return float(values[places[0]]) if len(places) else float("nan")


def check_round(runs: Sequence[RecordedRun], at: At) -> None:
    """Checks that a run evaluated the round that scores are taken from.

    Raises:
        ScenarioError: None did, or `at` is another word.
    """
    if isinstance(at, str) and at in WORDS:
        return
    number: Any = at
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise ScenarioError(f"at: must be {', '.join(WORDS)} or the number of a round (got '{at}')")
    rounds = np.unique(np.concatenate([run.rounds[run.ranked] for run in runs]))
    if at not in rounds:
        near = rounds[np.argsort(np.abs(rounds - at), kind="stable")[:1]]
        hint = f"the nearest evaluated round is {near[0]}" if len(near) else "no round has comparable scores"
        raise ScenarioError(f"at: no run evaluated round {at}; {hint}")


def higher_is_better(column: str, runs: Iterable[RecordedRun]) -> bool | None:
    """The direction of a column; None if it is not known.

    Lower variances over clients are better. The directions of metrics other than the headline metric and the loss come
    from the registered metrics or from the scenario; that of another is known only if the scenario says it.
    """
    runs = list(runs)
    endings = (statistic_over_clients(column, run.columns) for run in runs)
    if column in LOWER_IS_BETTER or any(ending and "variance" in ending[1] for ending in endings):
        return False
    column = column.partition(PART)[0]
    directions: dict[str, bool | None] = {"loss": False}
    for run in runs:
        directions |= _stated(run) | {run.headline.metric: run.headline.higher_is_better}
    if label_in(column, directions) is None:
        from rayfl.tasks.metrics import metrics  # loads PyTorch

        directions |= {name: getattr(metrics.resolve(name), "higher_is_better", None) for name in metrics}
    label = label_in(column, directions)
    return None if label is None else directions[label]


def _stated(run: RecordedRun) -> dict[str, bool | None]:
    """Metrics whose direction is in the scenario, and a user's own metrics, with None where it does not say it."""
    directions: dict[str, bool | None] = {}
    for section in (run.scenario.get("evaluation", {}), *run.scenario.get("phases", [])):
        for entry in section.get("metrics") or []:
            table = entry if isinstance(entry, dict) else {"name": entry}
            name = str(table["name"])
            if "higher_is_better" in table or ":" in name:
                label = table.get("label") or name.rpartition(":")[2].rpartition(".")[2]
                directions[str(label)] = table.get("higher_is_better")
    return directions


def best_round(run: RecordedRun, window: int = 1) -> int | None:
    """The first round in which the headline metric is best; None if it is finite in none."""
    place = _best_place(run, window)
    return None if place is None else int(run.rounds[run.ranked][place])


def _best_place(run: RecordedRun, window: int) -> int | None:
    values = ranked_values(run, run.headline.column, window)
    return run.headline.best(values.tolist()) if np.isfinite(values).any() else None


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
        values = self.costs.get(cost, {})
        over_runs = summary(values) if len(values) == self.count else None
        return over_runs and over_runs.mean


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
