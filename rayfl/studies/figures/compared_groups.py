"""Groups of runs compared by one metric: means, differences to a reference, and the cost of reaching a target.

And the tables of a comparison: a row for each group, the best in bold. Checks the metrics and the reference against the
runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rayfl.config.registry import nearest
from rayfl.console import Bold, TextTable
from rayfl.errors import ScenarioError
from rayfl.runs.figures.quantities import Quantity, quantity_of
from rayfl.runs.figures.recorded_run import RecordedRun
from rayfl.studies.figures.groups import Group, Recorded
from rayfl.studies.figures.scores import (
    TARGET_COSTS,
    At,
    Reached,
    best_round,
    higher_is_better,
    reached,
    score,
    words_of,
)
from rayfl.studies.grid.results import TAIL
from rayfl.studies.statistics import Key, Summary, paired_difference, repetitions, summary
from rayfl.studies.tables import Numbers


class ComparisonOptions(NamedTuple):
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
class ComparedGroup:
    """A group in a table; scores are in the unit of the records.

    Attributes:
        group: Its runs.
        values: Their finite scores by task and seed.
        difference: To the reference, over the runs of the same task and seed; None where there are none.
        reached: Of the runs that reached the target; None without a target.
    """

    group: Group
    values: Mapping[Key, float]
    difference: Summary | None
    reached: Reached | None

    @cached_property
    def score(self) -> Summary | None:
        """Their mean and deviation over tasks, or over seeds where there are no tasks; None if no run has a score."""
        return summary(self.values)


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
    lines: tuple[ComparedGroup, ...]

    @property
    def best(self) -> float | None:
        """The best mean; None where the direction is not known or no group has a score."""
        means = [line.score.mean for line in self.lines if line.score]
        return None if self.higher is None or not means else (max if self.higher else min)(means)


def compared(recorded: Recorded, metric: str, choice: ComparisonOptions) -> list[Compared]:
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
    comparisons = []
    for panel in recorded.panels:
        groups = recorded.in_panel(panel)
        if any(metric in run.columns for group in groups for run in group.runs):
            lines = tuple(_line(group, groups, metric, higher, choice) for group in groups)
            comparisons.append(Compared(metric, panel, quantity, higher, lines))
    return comparisons


def _line(
    group: Group, groups: Sequence[Group], metric: str, higher: bool | None, choice: ComparisonOptions
) -> ComparedGroup:
    values = _scores(group, metric, choice)
    difference = None
    for other in groups:
        if other.label == choice.reference and other is not group:
            difference = paired_difference(values, _scores(other, metric, choice))
    costs = None
    if choice.target is not None and higher is not None:
        costs = reached(group.runs, metric, choice.target, higher, choice.window)
    return ComparedGroup(group, values, difference, costs)


def _scores(group: Group, metric: str, choice: ComparisonOptions) -> dict[Key, float]:
    scores = {run.key: score(run, metric, choice.at, choice.window) for run in group.runs}
    return {key: value for key, value in scores.items() if math.isfinite(value)}


def check_metrics(recorded: Recorded, asked: list[str]) -> list[str]:
    """The metrics to compare by: those asked for, else the headline metrics of the runs.

    Raises:
        ScenarioError: No run has recorded one, or none has a finite value of it.
    """
    known = {name for run in recorded.runs for name in run.columns}
    metrics = asked or list(dict.fromkeys(run.headline.reported for run in recorded.runs))
    for metric in metrics:
        if metric not in known:
            raise ScenarioError(f"metric '{metric}': no run has recorded it; {nearest(metric, known)}")
        if not any(_has_value(run, metric) for run in recorded.runs):
            raise ScenarioError(f"metric '{metric}': no run has a finite value of it in a round that can be compared")
    return metrics


def _has_value(run: RecordedRun, metric: str) -> bool:
    return metric in run.columns and any(math.isfinite(value) for value in run.columns[metric][run.ranked])


def check_reference(recorded: Recorded, reference: str | None) -> str | None:
    """The label that the others are compared with: `reference`, or else the first; None for a single group.

    Raises:
        ScenarioError: No group has this label, there is no other, or no run has one of the same task and seed.
    """
    labels = recorded.labels
    if reference is None:
        return labels[0] if len(labels) > 1 else None
    if reference not in labels:
        raise ScenarioError(f"reference '{reference}': no row has this label; {nearest(reference, labels)}")
    if len(labels) == 1:
        raise ScenarioError(f"reference '{reference}': there is nothing else to compare; name more runs")
    if not any(_pairs(recorded.in_panel(panel), reference) for panel in recorded.panels):
        raise ScenarioError(
            f"reference '{reference}': no other run has the same seed{_and_task(recorded.runs)} as one of its runs "
            f"({_seeds(recorded, reference, True)} against {_seeds(recorded, reference, False)}), so nothing can be "
            "paired; leave the reference out, or run the same seeds"
        )
    return reference


def _pairs(groups: Sequence[Group], reference: str) -> bool:
    keys = {run.key for group in groups if group.label == reference for run in group.runs}
    return any(run.key in keys for group in groups if group.label != reference for run in group.runs)


def _seeds(recorded: Recorded, reference: str, own: bool) -> str:
    seeds = {run.seed for group in recorded.groups if (group.label == reference) == own for run in group.runs}
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}"


def _and_task(runs: Sequence[RecordedRun]) -> str:
    return " and task" if any(run.task is not None for run in runs) else ""


NOTHING = "–"
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def table_of(comparison: Compared, choice: ComparisonOptions) -> TextTable:
    """The table of a metric in a panel."""
    scores = [line.score for line in comparison.lines if line.score]
    numbers = _numbers(comparison.quantity, [value for of in scores for value in (of.mean, of.deviation or 0.0)])
    has_tasks = any(run.task is not None for line in comparison.lines for run in line.group.runs)
    counts = [_counted(line) for line in comparison.lines]
    count = counts[0] if len(set(counts)) == 1 and counts[0].isdecimal() else ""
    columns = [
        ("", [line.group.label for line in comparison.lines]),
        (comparison.quantity.within(", "), _score_cells(comparison, numbers)),
    ]
    if not count:
        columns.append(("tasks" if has_tasks else "seeds", counts))
    if any(line.difference for line in comparison.lines):
        columns.append(
            (f"difference to {choice.reference}", [_difference(line, choice, numbers) for line in comparison.lines])
        )
        pairs = [str(line.difference.repetitions) if line.difference else NOTHING for line in comparison.lines]
        if set(pairs) - {NOTHING, count}:
            columns.append(("pairs", pairs))
    reached = [line.reached for line in comparison.lines if line.reached is not None]
    if choice.target is not None and reached:
        target = f"{comparison.quantity.factor * choice.target:.6g} {comparison.quantity.unit}".rstrip()
        columns += _target_columns(reached, target)
    header, entries = zip(*columns, strict=True)
    return TextTable(_caption(comparison, choice, has_tasks, count), header, list(zip(*entries, strict=True)))


def table_of_runs(groups: Sequence[Group], metric: str, window: int) -> TextTable:
    """Every run by a metric: in its best round, over its last rounds, and after its last."""
    runs = [(group.name, run) for group in groups for run in group.runs if metric in run.columns and run.ranked.any()]
    quantity = quantity_of([run for _, run in runs], metric)
    has_tasks = any(run.task is not None for _, run in runs)
    values = [[score(run, metric, at, window) for at in ("best", "mean_last_5", "last")] for _, run in runs]
    numbers = _numbers(quantity, [value for scores in values for value in scores])
    rows = []
    for (name, run), scores in zip(runs, values, strict=True):
        best, tail, last = (numbers.text(value) if math.isfinite(value) else NOTHING for value in scores)
        task = [NOTHING if run.task is None else str(run.task)] if has_tasks else []
        place = best_round(run, window)
        chosen = [best, NOTHING if place is None else str(place)]
        rows.append([name, str(run.seed), *task, *chosen, tail, last])
    header = ["", "seed", *(["task"] if has_tasks else []), "best", "in round", f"mean of the last {TAIL}", "last"]
    return TextTable(f"All runs: {quantity.within(' in ')}{_smoothed(window)}.", header, rows, ("seed", "task"))


def _score_cells(comparison: Compared, numbers: Numbers) -> list[str]:
    """Means and deviations; those that read like the best are in bold, unless all do."""
    means = [numbers.text(line.score.mean) if line.score else NOTHING for line in comparison.lines]
    best = numbers.text(comparison.best) if comparison.best is not None and len(set(means)) > 1 else ""
    spreads = [numbers.spread(line.score) if line.score else NOTHING for line in comparison.lines]
    return [_cell(text, mean == best) for text, mean in zip(spreads, means, strict=True)]


def _cell(text: str, bold: bool) -> str:
    return Bold(text) if bold else text


def _counted(line: ComparedGroup) -> str:
    """How many repetitions there are, and how many runs have no finite score."""
    scored = line.score.repetitions if line.score else 0
    total = len(repetitions({run.key: run for run in line.group.runs}))
    missing = len(line.group.runs) - len(line.values)
    if not missing:
        return str(total)
    return f"{scored} of {total}" if scored < total else f"{total}, less {missing} run{'s' if missing > 1 else ''}"


def _difference(line: ComparedGroup, choice: ComparisonOptions, numbers: Numbers) -> str:
    paired = line.difference
    if paired is None:
        return "reference" if line.group.label == choice.reference else "no pairs"
    return numbers.difference(paired)


def _target_columns(by_group: Sequence[Reached], target: str) -> Iterator[tuple[str, list[str]]]:
    """How many runs reached the target, then their mean costs; the lowest in bold, of the groups in which all did.

    Nothing is in bold where all costs are equal.
    """
    yield f"reached {target}", [*map(_reached, by_group)]
    for cost in TARGET_COSTS:
        means = [reached.mean(cost.name) for reached in by_group]
        known = [mean for mean in means if mean is not None]
        if not known:
            continue
        header, text = _amounts(cost.name, cost.words, max(known))
        complete = [mean for mean, reached in zip(means, by_group, strict=True) if reached.count == reached.runs]
        least = min((mean for mean in complete if mean is not None), default=None) if len({*known}) > 1 else None
        yield (
            header,
            [
                NOTHING if mean is None else _cell(text(mean), mean == least and reached.count == reached.runs)
                for mean, reached in zip(means, by_group, strict=True)
            ],
        )


def _reached(result: Reached) -> str:
    runs = f"{result.runs} run{'s' if result.runs > 1 else ''}"
    return f"{result.count} of {runs}" if result.count else f"not reached by {runs}"


def _amounts(cost: str, words: str, most: float) -> tuple[str, Callable[[float], str]]:
    """The header of a cost, and how its values are written."""
    if cost == "bytes":
        size, unit = next(unit for unit in _BYTES if most >= unit[0] or unit[0] == 1)
        return ("bytes" if unit == "bytes" else f"bytes, {unit}"), lambda value: f"{value / size:.4g}"
    if cost in ("rounds", "client_updates", "transfers"):
        return words, lambda value: f"{value:.0f}" if value == round(value) else f"{value:.1f}"
    return words, lambda value: f"{value:.4g}"


def _caption(comparison: Compared, choice: ComparisonOptions, has_tasks: bool, count: str) -> str:
    """Describes the numbers and what they are means over: `count` seeds or tasks, if all groups have as many."""
    where = f"{comparison.panel}: " if comparison.panel else ""
    smoothed = "" if choice.at == "last" else _smoothed(choice.window)  # the last round keeps its value
    scores = words_of(choice.at, [run for line in comparison.lines for run in line.group.runs])
    parts = [f"{where}{comparison.quantity.within(' in ')}, {scores}{smoothed}"]
    over = f"{count} {'tasks, each averaged over its seeds' if has_tasks else 'seeds'}".lstrip()
    if any(line.score and line.score.deviation is not None for line in comparison.lines):
        parts.append(f"mean ± sample standard deviation over {over}")
    elif has_tasks:
        parts.append("mean over the seeds of a task")
    elif count:
        parts.append("one seed each" if len(comparison.lines) > 1 else "one seed")
    if any(line.difference and line.difference.margin is not None for line in comparison.lines):
        same = "task and seed" if has_tasks else "seed"
        parts.append(
            f"differences to {choice.reference} between runs of the same {same}, with 95 % t-intervals over "
            f"{'tasks' if has_tasks else 'seeds'}"
        )
    if choice.target is not None and any(line.reached for line in comparison.lines):
        parts.append(
            f"costs up to the first evaluated round that reached the target{_smoothed(choice.window)}, means over the "
            "runs that did"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if not comparison.panel else f"{text}."


def _smoothed(window: int) -> str:
    return f", smoothed over {window} evaluated rounds" if window > 1 else ""


def _numbers(quantity: Quantity, values: Sequence[float]) -> Numbers:
    """Two decimals of percent; of other numbers, four digits of the largest, and no decimals if all are whole."""
    if not quantity.unit and all(value.is_integer() for value in values):
        return Numbers(quantity.factor, 0)
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    decimals = 2 if quantity.unit else max(0, 3 - math.floor(math.log10(most))) if most else 3
    return Numbers(quantity.factor, decimals)
