"""Scores of single clients of groups of runs: those of the same client, averaged over the runs of a group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from rayfl.errors import ScenarioError
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.client_dots import dot_panels
from rayfl.runs.figures.client_scores import ClientScores, scores_by_set, scores_of
from rayfl.runs.figures.panels import draw
from rayfl.runs.figures.quantities import Quantity
from rayfl.runs.figures.recorded_run import RecordedRun
from rayfl.runs.figures.style import DOTS, LineStyle, Width
from rayfl.studies.figures.groups import Group, Recorded
from rayfl.studies.figures.scores import higher_is_better

By = Literal["client"]
"""What runs are shown by, instead of their scores by round."""


@dataclass(frozen=True, eq=False)
class GroupClients:
    """The clients of a group of runs, each with its mean over the runs that scored it.

    Attributes:
        group: The runs.
        names: Owners, or numbers where not all runs name them [n].
        values: float64 [n], in the unit of the records; NaN where undefined.
        samples: float64 [n], the mean number of samples behind a score.
    """

    group: Group
    names: np.ndarray
    values: np.ndarray
    samples: np.ndarray


@dataclass(frozen=True, eq=False)
class MetricClients:
    """A metric of the clients of all groups.

    Attributes:
        metric: As it was asked for; the label of the headline metric if none was.
        quantity: Its words and unit.
        higher: Whether higher values are better; None where that is not known.
        groups: In the order of the runs.
    """

    metric: str
    quantity: Quantity
    higher: bool | None
    groups: tuple[GroupClients, ...]

    def in_panel(self, panel: str) -> list[GroupClients]:
        """The groups of a column of a grid."""
        return [clients for clients in self.groups if clients.group.panel == panel]


def check_idle_with_clients(**options: tuple[Any, Any]) -> None:
    """Checks that no option is given that has no effect on single clients; each with its value and its default.

    Raises:
        ScenarioError: One is.
    """
    for name, (value, default) in options.items():
        if value != default:
            raise ScenarioError(f"{name}: has no effect with by = 'client', which shows the last scores of each client")


def metrics_of_clients(recorded: Recorded, metrics: Sequence[str]) -> list[MetricClients]:
    """Reads metrics of the clients of all groups in the last round of each run that scored them.

    Args:
        recorded: The runs.
        metrics: `accuracy`, or `validation_accuracy` of another set of samples than clients' own test samples; by
            default the headline metric.

    Raises:
        DataError: clients.parquet of a run is damaged.
        ScenarioError: A run has no scores of single clients, or not this metric, or in another unit.
    """
    found = {run.where: scores_by_set(RunArchive(Path(run.where)), run.headline) for run in recorded.runs}
    return [_metric(recorded, metric, found) for metric in metrics or [""]]


def _metric(recorded: Recorded, metric: str, found: dict[str, list[ClientScores]]) -> MetricClients:
    chosen = {run.where: scores_of(found[run.where], metric, run.where) for run in recorded.runs}
    quantities = list(dict.fromkeys(scores.quantity(name) for scores, name in chosen.values()))
    if len(quantities) > 1:
        words = " and ".join(quantity.label for quantity in quantities)
        raise ScenarioError(f"metric: the runs have different scores of single clients ({words}); show them separately")
    named = all(scores.owners is not None for scores, _ in chosen.values())
    if not named and len({_split(run) for run in recorded.runs}) > 1:
        raise ScenarioError(
            "by: the data does not name its clients, and its split differs between these runs (by seed, task or other "
            "keys of [data]), so equal numbers are different clients; give runs of one seed and split, or set data.seed"
        )
    groups = tuple(_group(group, [chosen[run.where] for run in group.runs], named) for group in recorded.groups)
    (scores, name), *_ = chosen.values()
    higher = _direction(name, scores, recorded.runs)
    return MetricClients(metric or name, quantities[0], higher, groups)


_OF_BATCHES = ("seed", "source", "normalize", "augment", "views", "collate")
"""Keys of [data] that do not decide which samples a client has, except through the source and seed that a run had."""


def _split(run: RecordedRun) -> str:
    """Everything that decides which samples each client has."""
    data = run.scenario.get("data", {})
    seed = run.seed if data.get("seed") is None else data["seed"]
    settings = {key: value for key, value in data.items() if key not in _OF_BATCHES}
    return json.dumps([settings, run.data.source, seed, run.task], sort_keys=True, default=str)


def _names(scores: ClientScores, named: bool) -> np.ndarray:
    everybody = np.arange(len(scores))
    return np.asarray(scores.names(everybody) if named else [f"client {of}" for of in scores.clients.tolist()])


def _direction(name: str, scores: ClientScores, runs: Sequence[RecordedRun]) -> bool | None:
    if name == scores.headline.metric:
        return scores.headline.higher_is_better
    return higher_is_better(name, runs)


def _group(group: Group, chosen: Sequence[tuple[ClientScores, str]], named: bool) -> GroupClients:
    names = np.concatenate([_names(scores, named) for scores, _ in chosen])
    values = np.concatenate([scores.scores[name] for scores, name in chosen])
    samples = np.concatenate([scores.samples for scores, _ in chosen]).astype(np.float64)
    if len(chosen) == 1:
        return GroupClients(group, names, values, samples)
    each, first, place = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first)  # clients stay in the order of the first run

    def mean(of: np.ndarray, known: np.ndarray) -> np.ndarray:
        total = np.bincount(place[known], weights=of[known], minlength=len(each))
        count = np.bincount(place[known], minlength=len(each))
        means: np.ndarray = np.where(count > 0, total / np.maximum(count, 1), np.nan)[order]
        return means

    everything = np.ones(len(values), bool)
    return GroupClients(group, each[order], mean(values, ~np.isnan(values)), mean(samples, everything))


def figure_of_clients(
    recorded: Recorded, metrics: Sequence[str], styles: Mapping[str, LineStyle], caption: str, width: Width
) -> Figure:
    """Draws a dot for every client, by rank and by number of samples, for every metric and column of a grid.

    Raises:
        DataError, ScenarioError: See `metrics_of_clients`.
    """
    panels = []
    for of in metrics_of_clients(recorded, metrics):
        for panel in recorded.panels:
            lines = {clients.group.label: (clients.values, clients.samples) for clients in of.in_panel(panel)}
            title = panel if len(recorded.panels) > 1 else ""
            panels += dot_panels(title, lines, of.quantity, of.higher)
    if not panels:
        raise ScenarioError("by: the labels of every client leave the metric undefined; name another metric")
    dots = {label: style._replace(dash=DOTS) for label, style in styles.items()}
    return draw(panels, dots, caption, width, share_y=len(recorded.data) == 1)
