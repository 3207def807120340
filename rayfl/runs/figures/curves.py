"""The learning curves of one run: every metric and the losses over the rounds, and the result over what it cost.

`curves.png` in the folder of a run and the run's page show the same figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import rayfl
from rayfl.errors import DataError
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.panels import DrawnCurve, Panel, draw
from rayfl.runs.figures.quantities import COSTS, Quantity, Series, phase_ends, quantity_of, x_axis
from rayfl.runs.figures.recorded_run import RecordedRun, read_so_far
from rayfl.runs.figures.style import drawing, line_style, write

CURVES_FILE = "curves.png"
TRAINING, TRAINING_LOSS = "training", "train_loss"


def draw_curves(folder: Path) -> None:
    """Writes a PNG with the learning curves of a run into its folder.

    Raises:
        DataError: The run has no evaluated round, or no value of it is finite.
        ResourceError: Its records are damaged.
    """
    run = read_so_far(RunArchive(folder))
    with drawing():
        title = str(run.scenario.get("title") or run.scenario.get("name", run.row))
        write(curves_of(run, title), folder / CURVES_FILE)


def curves_of(run: RecordedRun, heading: str = "") -> Figure:
    """Draws the curves of a run, within `drawing`, below a heading if there is one.

    Raises:
        DataError: No value of the run is finite.
    """
    panels = [panel for panel in (*_over_rounds(run), *_over_costs(run)) if panel.lines]
    if not panels:
        raise DataError(f"'{run.where}': no recorded score or loss is finite, so there is nothing to draw")
    labels = dict.fromkeys(line.label for panel in panels for line in panel.lines)
    styles = {label: line_style(place) for place, label in enumerate(labels)}
    return draw(panels, styles, _caption(run), "page", heading=heading)


def _over_rounds(run: RecordedRun) -> Iterator[Panel]:
    """A panel for each metric, the result first and the loss next, with a line for each set of samples."""
    x, (rounds,) = x_axis([run], "rounds")
    for metric, columns in _by_metric(run).items():
        lines = [_line(run, column, rounds, label) for label, column in columns.items()]
        quantity = quantity_of([run], next(iter(columns.values())))
        words = metric.replace("_", " ")
        yield Panel("", x, Quantity(words, quantity.factor, quantity.unit), tuple(filter(None, lines)))


def _by_metric(run: RecordedRun) -> Mapping[str, Mapping[str, str]]:
    """The column of each set of samples for each metric."""
    found: dict[str, dict[str, str]] = {run.headline.metric: {}, "loss": {}}
    for column in run.scores:
        samples = next((name for name in run.sets if column.startswith(f"{name}_")), "")
        metric = column.removeprefix(f"{samples}_")
        found.setdefault(metric, {})[samples.replace("_", " ")] = column
    if TRAINING_LOSS in run.columns:
        found["loss"][TRAINING] = TRAINING_LOSS
    return {metric: columns for metric, columns in found.items() if columns}


def _over_costs(run: RecordedRun) -> Iterator[Panel]:
    """The result over the costs of a run with a virtual clock."""
    if "simulated_seconds" not in run.columns or run.headline.column not in run.columns:
        return
    for axis, cost in COSTS.items():
        if np.nanmax(run.columns.get(cost.column, np.zeros(1)), initial=0.0) > 0:
            x, (spent,) = x_axis([run], axis)
            line = _line(run, run.headline.column, spent, run.headline.on.replace("_", " "), axis)
            words = quantity_of([run], run.headline.column)
            y = Quantity(run.headline.metric.replace("_", " "), words.factor, words.unit)
            yield Panel("", x, y, (line,) if line else ())


def _line(run: RecordedRun, column: str, x: np.ndarray, label: str, axis: str = "rounds") -> DrawnCurve | None:
    """A column over an axis; None if none of its values is finite."""
    values = run.values(column)
    known = np.isfinite(x)
    if not np.isfinite(values[known]).any():
        return None
    x, values = x[known], values[known]
    ends = phase_ends(run, x, axis) if known.all() else ()
    return DrawnCurve(label, Series(x, values, values, values, 1), tuple(end for end in ends if x[0] < end[0] < x[-1]))


def _caption(run: RecordedRun) -> str:
    parts = [f"data: {run.data.text}"]
    if run.headline.column in run.columns:
        scores = run.values(run.headline.column)
        if np.isfinite(scores).any():
            best = run.headline.best(scores.tolist())
            parts.insert(0, f"best {run.headline.words} {run.headline.text(scores[best])} in round {run.rounds[best]}")
    for column in (TRAINING_LOSS, *run.scores):
        if column in run.columns and (lost := _lost(run, column)):
            words = quantity_of([run], column).words
            parts += [f"no finite {words} in {lost} of {len(run.rounds)} evaluated rounds"]
    text = "; ".join([*parts, f"rayfl\N{NO-BREAK SPACE}{rayfl.__version__}"])
    return text[:1].upper() + text[1:]


def _lost(run: RecordedRun, column: str) -> int:
    """The number of evaluated rounds without a finite value, in phases that have some."""
    finite, phases = np.isfinite(run.columns[column]), np.asarray(run.phase_names)
    return int((~finite & np.isin(phases, phases[finite])).sum())
