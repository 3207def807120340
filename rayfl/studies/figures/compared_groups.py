"""Groups of runs compared by one metric: means, differences to a reference, and the cost of reaching a target.

Checks the metrics and the reference against the runs, and finds runs that used different versions of the same user code
or data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rayfl.config.registry import nearest
from rayfl.errors import ScenarioError
from rayfl.files import reading
from rayfl.studies.figures.groups import Group, Recorded
from rayfl.studies.figures.quantities import Quantity, quantity_of
from rayfl.studies.figures.recorded_run import RecordedRun
from rayfl.studies.figures.scores import At, Reached, higher_is_better, reached, score
from rayfl.studies.statistics import Key, Summary, paired_difference, summary


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
    lines: tuple[Line, ...]

    @property
    def best(self) -> float | None:
        """The best mean; None where the direction is not known or no group has a score."""
        means = [line.score.mean for line in self.lines if line.score]
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
            difference = paired_difference(values, _scores(other, metric, choice))
    costs = None
    if choice.target is not None and higher is not None:
        costs = reached(group.runs, metric, choice.target, higher, choice.window)
    return Line(group, values, difference, costs)


def _scores(group: Group, metric: str, choice: Choice) -> dict[Key, float]:
    found = {run.key: score(run, metric, choice.at, choice.window) for run in group.runs}
    return {key: value for key, value in found.items() if math.isfinite(value)}


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
    """The label that the others are compared with: the one asked for, else the first; None if there is but one.

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
    found = {run.seed for group in recorded.groups if (group.label == reference) == own for run in group.runs}
    return f"seed{'s' if len(found) > 1 else ''} {', '.join(map(str, sorted(found)))}"


def _and_task(runs: Sequence[RecordedRun]) -> str:
    return " and task" if any(run.task is not None for run in runs) else ""


def version_notes(runs: Sequence[RecordedRun]) -> list[str]:
    """A sentence for every module and every data set of which the records name more than one version.

    Raises:
        DataError: The records of a run's code or data are damaged.
    """
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        with reading(run.where, "as the records of a finished run"):
            for of, digest in _digests(run):
                found.setdefault(of, {}).setdefault(digest, []).append(run.where)
    return [
        f"Different versions of the {what}: {' | '.join(', '.join(folders) for folders in by_digest.values())}."
        for (what, _), by_digest in found.items()
        if len(by_digest) > 1
    ]


def _digests(run: RecordedRun) -> Iterator[tuple[tuple[str, str], str]]:
    """(what, what was asked for) and the digest, of the user's modules and of the data; older records have none."""
    for module, digest in run.environment.get("code", {}).items():
        yield (f"code of {module}", ""), digest
    data = run.environment.get("data", {})
    if data.get("digest"):
        # generated data, and arrays from a program, may depend on every key of `data`
        asked = run.scenario["data"]
        keys = ("name", "source", "options") if data["files"] else sorted(asked)
        seed = "" if data["files"] else f" with seed {data['seed']}"
        yield (f"data of {data['name']}{seed}", json.dumps([asked.get(key) for key in keys])), data["digest"]
