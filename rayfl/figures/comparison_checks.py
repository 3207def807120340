"""Checks the metrics and the reference of a comparison against the runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rayfl.errors import ScenarioError
from rayfl.figures.groups import Group, Recorded
from rayfl.figures.recorded_run import RecordedRun
from rayfl.registry import nearest


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
