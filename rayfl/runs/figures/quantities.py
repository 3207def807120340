"""What is on the axes of a figure: quantities, with their columns, words and units, and series of values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np

from rayfl.config.registry import nearest
from rayfl.engine.plan.headline import PART, Headline, statistic_over_clients, unit_of
from rayfl.errors import ScenarioError
from rayfl.runs.figures.recorded_run import RecordedRun, client_updates

X = Literal[
    "rounds", "last_phase", "updates", "bytes", "transfers", "seconds", "simulated_seconds", "energy", "epsilon"
]
"""Quantities for the x axis; `last_phase` counts rounds from the begin of the last phase, those before it below 0."""

_EPSILONS = {
    "client_epsilon": "client-level ε spent",
    "epsilon": "example-level ε spent",
}


class Cost(NamedTuple):
    """A quantity other than rounds to plot a score against.

    Attributes:
        column: Its column in the metrics.
        words: Its name on the axis.
        units: Size of each unit in units of the column, ascending, and its symbol.
    """

    column: str
    words: str
    units: tuple[tuple[float, str], ...]

    def unit_of(self, most: float) -> tuple[float, str]:
        """The largest unit that is not above `most`; else the smallest."""
        return next((unit for unit in reversed(self.units) if most >= unit[0]), self.units[0])


_TIMES = ((1, "s"), (60, "min"), (3600, "h"), (86400, "days"))
COSTS = {
    "simulated_seconds": Cost("simulated_seconds", "simulated time", _TIMES),
    "bytes": Cost("bytes", "traffic", ((1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))),
    "energy": Cost("energy_joules", "energy of clients", ((1, "J"), (1e3, "kJ"), (1e6, "MJ"))),
}
"""Costs of runs with a virtual clock, by axis."""

_BY_X = {
    **COSTS,
    "transfers": Cost("transfers", "model transfers", ((1.0, ""),)),
    "seconds": Cost("seconds", "wall-clock time", _TIMES),
}
_WORDS = {
    "train_loss": "training loss",
    "client_epsilon": _EPSILONS["client_epsilon"],
    "epsilon": _EPSILONS["epsilon"],
    "seconds": "wall-clock time in s",
    "simulated_seconds": "simulated time in s",
    "energy_joules": "energy of clients in J",
}
_ENDINGS = (
    (re.compile(r"/(\d+)$"), ", class \\1"),
    (re.compile(r"/(.+)$"), ", \\1"),
    (re.compile(r"_lowest_(\d+)$"), ", worst \\1\N{NO-BREAK SPACE}% of clients"),
    (re.compile(r"_variance_corrected$"), ", variance over clients without sampling noise"),
    (re.compile(r"_variance$"), ", variance over clients"),
    (re.compile(r"_mean$"), ", mean over clients"),
    (re.compile(r"_clients$"), ", number of clients"),
)


@dataclass(frozen=True)
class Quantity:
    """The quantity on an axis.

    Attributes:
        words: Its name, for a reader.
        factor: Recorded values times this are in its unit.
        unit: Symbol of the unit, or empty.
    """

    words: str
    factor: float = 1.0
    unit: str = ""

    @property
    def label(self) -> str:
        """The label of an axis: `Test accuracy (%)`."""
        return self.words[:1].upper() + self.words[1:] + (f" ({self.unit})" if self.unit else "")

    def within(self, joint: str) -> str:
        """Its words and unit, joined, within a sentence: `test accuracy in %`."""
        return self.words + (f"{joint}{self.unit}" if self.unit else "")


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


def asked(metrics: str | Iterable[str]) -> list[str]:
    """The metrics that a caller named, each once."""
    return [metrics] if isinstance(metrics, str) else list(dict.fromkeys(metrics))


def default_metric(headlines: Iterable[Headline], where: str = "metric", todo: str = "name one that all report") -> str:
    """The column with the result of all runs.

    Args:
        headlines: The metrics that rank the rounds of each run.
        where: What an error begins with.
        todo: What it asks for.

    Raises:
        ScenarioError: They report different ones.
    """
    columns = list(dict.fromkeys(headline.reported for headline in headlines))
    if len(columns) > 1:
        named = " and ".join(f"'{column}'" for column in columns)
        raise ScenarioError(f"{where}: the runs are ranked by different metrics, {named}; {todo}")
    return columns[0]


def quantity_of(runs: Sequence[RecordedRun], column: str) -> Quantity:
    """A column of metrics.jsonl as the quantity of a y axis.

    Raises:
        ScenarioError: A run does not report it, or it is a share in one run and none in another.
    """
    for run in runs:
        if column not in run.columns:
            raise ScenarioError(f"metric: '{run.where}' does not report '{column}'; {nearest(column, run.columns)}")
    quantities = list(dict.fromkeys(_metric(run, column) for run in runs))
    if len(quantities) > 1:
        units = " and ".join(f"in {quantity.unit}" if quantity.unit else "a plain number" for quantity in quantities)
        raise ScenarioError(f"metric: '{column}' has different units among the runs ({units}); show them separately")
    return quantities[0]


def _metric(run: RecordedRun, column: str) -> Quantity:
    words = _WORDS.get(column, "")
    if not words:
        stem, ending = column, ""
        over_clients = statistic_over_clients(column, run.columns)
        for pattern, text in _ENDINGS:
            if (match := pattern.search(column)) and (over_clients or match[0].startswith(PART)):
                stem, ending = column[: match.start()], match.expand(text)
                break
        words = stem.replace("_", " ") + ending
    return Quantity(words, *unit_of(column, run.headline))


def x_axis(runs: Sequence[RecordedRun], x: str) -> tuple[Quantity, list[np.ndarray]]:
    """The quantity of the x axis, and its values in every run.

    Args:
        runs: All that are drawn.
        x: One of `X`.

    Returns:
        The quantity, and float64 [n] for each run, one for each evaluated round, in the unit of the quantity.

    Raises:
        ScenarioError: `x` is unknown, or some runs have not recorded it.
    """
    if x not in get_args(X):
        raise ScenarioError(f"x: there is no axis '{x}'; {nearest(x, get_args(X))}")
    if x == "rounds":
        return Quantity("round"), [run.rounds.astype(np.float64) for run in runs]
    if x == "last_phase":
        return Quantity("round of the last phase"), [_since_switch(run) for run in runs]
    if x == "updates":
        return Quantity("client updates"), [_updates(run) for run in runs]
    if x == "epsilon":
        return _epsilon(runs)
    cost = _BY_X[x]
    recorded = [_recorded(run, cost.column, x) for run in runs]
    most = max(float(np.nanmax(values, initial=0.0)) for values in recorded)
    factor, unit = cost.unit_of(most)
    return Quantity(cost.words, 1 / factor, unit), [values / factor for values in recorded]


def _since_switch(run: RecordedRun) -> np.ndarray:
    first = run.phases[-1].first_round if run.phases else 1
    return run.rounds - (first - 1.0)


def _recorded(run: RecordedRun, column: str, x: str) -> np.ndarray:
    values = run.columns.get(column)
    if values is None or not np.isfinite(values).any():
        raise ScenarioError(f"x: '{run.where}' has not recorded {x}; choose another axis, such as rounds")
    return values


def _epsilon(runs: Sequence[RecordedRun]) -> tuple[Quantity, list[np.ndarray]]:
    kinds = [next((column for column in _EPSILONS if column in run.columns), "") for run in runs]
    for run, kind in zip(runs, kinds, strict=True):
        if not kind:
            raise ScenarioError(f"x: '{run.where}' has not recorded epsilon; choose another axis, such as rounds")
    if len(set(kinds)) > 1:
        raise ScenarioError("x: epsilon is client-level in some runs and example-level in others; plot them separately")
    return Quantity(_EPSILONS[kinds[0]]), [run.columns[kinds[0]] for run in runs]


def _updates(run: RecordedRun) -> np.ndarray:
    """Client updates up to every evaluated round, of phases whose cohorts have a given size."""
    updates = client_updates(run)
    if updates is None:
        raise ScenarioError(
            f"x: the scenario of '{run.where}' does not tell the number of client updates (no cohorts, or of varying "
            "size; [participation]; a privacy budget); choose another axis, such as rounds or transfers"
        )
    return updates


def phase_ends(run: RecordedRun, x: np.ndarray, axis: str) -> tuple[tuple[float, str], ...]:
    """Where each phase but the last ends on the x axis, by interpolation between evaluated rounds, and the names."""
    ends = [(phase.last_round, f"{phase.name} → {after.name}") for phase, after in pairwise(run.phases)]
    if axis in ("rounds", "last_phase"):
        start = x[0] - run.rounds[0]
        return tuple((last + 0.5 + start, text) for last, text in ends)
    places = np.interp([last for last, _ in ends], [0, *run.rounds], [0.0, *x]) if ends else []
    return tuple((float(place), text) for place, (_, text) in zip(places, ends, strict=True))
