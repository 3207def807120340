"""`rayfl.plot`: learning curves of finished runs and grids as a figure for a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from matplotlib.figure import Figure

import rayfl
from rayfl.config.registry import nearest
from rayfl.errors import ResourceError, ScenarioError
from rayfl.runs.figures.panels import DrawnCurve, Panel, draw
from rayfl.runs.figures.quantities import X, asked, default_metric, phase_ends, quantity_of, x_axis
from rayfl.runs.figures.style import MOST_LINES, LineStyle, Width, check_suffix, data_text, drawing, line_style, write
from rayfl.studies.figures.clients import By, check_idle_with_clients, figure_of_clients
from rayfl.studies.figures.groups import Group, Panels, Recorded, Source, arranged
from rayfl.studies.figures.scores import At, check_round, words_of
from rayfl.studies.figures.sweep import sweep
from rayfl.studies.statistics import Band, check_smoothing, repetitions, series, smoothed

_BANDS = {"std": "± 1 standard deviation", "range": "least to largest", "interval": "95 % confidence interval"}


def plot(
    *sources: Source,
    out: str | Path | None = None,
    metrics: str | Iterable[str] = (),
    x: X | str = "rounds",
    at: At = "last",
    smooth: int = 1,
    band: Band = "std",
    lines: Sequence[str] = (),
    labels: Sequence[str] = (),
    panels: Panels = "columns",
    width: Width | None = None,
    by: By | None = None,
) -> Figure:
    """Draws learning curves of finished runs and grids, legible in print and in greyscale.

    Runs that differ in their seeds alone are one line: their mean, with a band. A grid has a panel for each of its
    columns, and a line for each row. In a grid with tasks, the seeds of a task are averaged first, and mean and band
    are over tasks, as in `rayfl.compare`.

    Args:
        *sources: Folders of runs and grids, or what `rayfl.run` and `rayfl.grid` returned.
        out: The file to write, `.png`, `.svg` or `.pdf`; None writes none. The same records give the same bytes.
        metrics: Columns of metrics.jsonl, a panel each; by default the metric that is the runs' result.
        x: The x axis: `rounds`, `last_phase` (rounds from its begin, earlier ones below 0), `updates` (of clients),
            `bytes`, `transfers` (of models), `seconds`, `simulated_seconds`, `energy` or `epsilon`. Or a key of the
            scenarios with numbers, such as `phases.cyclic.rounds`: each cell of a grid is then a point, and each row or
            column a line.
        at: With such a key, which rounds scores are taken from: `last`, `best` (the round with the best headline
            metric), `mean_last_5`, or the number of an evaluated round.
        smooth: An odd number of evaluated rounds. Curves are averaged first over a centred window of this width, within
            a phase.
        band: `std` (one sample standard deviation on either side), `range` (least to largest), `interval` (95 %
            confidence interval of the mean, by Student's t) or `none`.
        lines: Which lines to draw, by their names in the legend and in this order; by default all.
        labels: Other names for the legend, one for each line in order; by default titles of scenarios and rows of
            grids.
        panels: Whether the panels are the `columns` or the `rows` of a grid.
        width: `column` (3.4 inches) or `page` (7 inches); by default a column for one panel, else a page.
        by: `client` draws a dot for every client instead, by rank and by number of samples, with the last scores that
            runs recorded of single clients (`evaluation.per_client`). `metrics` are then those of clients.parquet, such
            as `accuracy`, or `validation_accuracy` of another set of samples. Clients of runs that differ in their
            seeds alone are averaged, by owner or number.

    Returns:
        The figure.

    Raises:
        DataError: A source is neither a run nor a grid, or has not finished.
        ResourceError: Records are damaged, or `out` cannot be written.
        ScenarioError: An option is wrong; or a run has not recorded a metric or the x axis.

    Example:
        >>> import rayfl
        >>> short = {"phases.cyclic.rounds": 1, "phases.federated.until": 2}
        >>> short |= {"data.source": "generated", "data.clients": 4}
        >>> result = rayfl.run("femnist_cyclic", overrides=short, backend="inline", quiet=True)
        >>> figure = rayfl.plot(result, out="curve.png", x="bytes")
        >>> figure.axes[0].get_xlabel()
        'Traffic (MB)'
    """
    for name, value, known in (
        ("band", band, get_args(Band)),
        ("width", width or "page", get_args(Width)),
        ("by", by or "client", get_args(By)),
    ):
        if value not in known:
            raise ScenarioError(f"{name}: there is no '{value}'; {nearest(value, known)}")
    check_smoothing(smooth)
    path = None if out is None else Path(out)
    if path is not None:
        check_suffix(path)
    recorded = arranged(sources, panels, labels, lines)
    if at != "last" and x in get_args(X):
        raise ScenarioError("at: has no effect on learning curves; give a key of the scenarios as x")
    check_round(recorded.runs, at)
    with drawing():
        names = asked(metrics) or ([] if by else [default_metric(run.headline for run in recorded.runs)])
        if by == "client":
            check_idle_with_clients(x=(x, "rounds"), at=(at, "last"), smooth=(smooth, 1), band=(band, "std"))
            caption = _caption(recorded, 1, "none", "last scores of each client")
            figure = figure_of_clients(recorded, names, _styles(recorded.labels), caption, width or "page")
        elif "." in x:
            figure = _figure_over_key(recorded, names, x, at, smooth, band, width)
        else:
            figure = figure_of(recorded, names, x, smooth, band, width)
        if path is not None:
            try:
                write(figure, path)
            except OSError as error:
                raise ResourceError(f"out: '{path}' cannot be written ({error.strerror or error})") from error
    return figure


def figure_of(
    recorded: Recorded,
    names: Sequence[str],
    x: str = "rounds",
    smooth: int = 1,
    band: Band = "std",
    width: Width | None = None,
) -> Figure:
    """Draws the curves of `plot` from records that were read before, with the current parameters of matplotlib."""
    styles = _styles(recorded.labels)
    runs = recorded.runs
    quantity, values = x_axis(runs, x)
    by_run = dict(zip(map(id, runs), values, strict=True))

    def line(group: Group, name: str) -> DrawnCurve:
        curves = {run.key: (by_run[id(run)], smoothed(run.values(name), run.phase_names, smooth)) for run in group.runs}
        curve = series(curves, band)
        ends = [phase_ends(run, by_run[id(run)], x) for run in group.runs]
        shown = tuple((place, text) for place, text in _means_of(ends) if curve.x[0] < place < curve.x[-1])
        return DrawnCurve(group.label, curve, shown)

    drawn = []
    for name in names:
        y = quantity_of(runs, name)
        for title in recorded.panels:
            lines = tuple(line(group, name) for group in recorded.in_panel(title))
            drawn.append(Panel(title if len(recorded.panels) > 1 else "", quantity, y, lines))
    return draw(
        drawn,
        styles,
        _caption(recorded, smooth, band),
        width or ("column" if len(drawn) == 1 else "page"),
        share_y=len(recorded.data) == 1,
    )


def _figure_over_key(
    recorded: Recorded, names: Sequence[str], key: str, at: At, smooth: int, band: Band, width: Width | None
) -> Figure:
    """Scores of the cells of a grid over a key of their scenarios."""
    drawn = sweep(recorded, names, key, at, smooth, band)
    styles = _styles([line.label for line in drawn[0].lines])
    return draw(
        drawn,
        styles,
        _caption(recorded, smooth, band, words_of(at, recorded.runs)),
        width or ("column" if len(drawn) == 1 else "page"),
        share_y=len(recorded.data) == 1,
    )


def _styles(labels: Sequence[str]) -> dict[str, LineStyle]:
    """The look of each line, in the order of the legend."""
    if len(labels) > MOST_LINES:
        raise ScenarioError(
            f"{len(labels)} lines cannot be told apart in one figure, {MOST_LINES} can; plot fewer runs"
        )
    return {label: line_style(place) for place, label in enumerate(labels)}


def _means_of(ends: Sequence[Sequence[tuple[float, str]]]) -> list[tuple[float, str]]:
    """Where phases end on average over runs; those of a run that others lack, which ended early, are left out."""
    places = [{text: place for place, text in of_run} for of_run in ends]
    common = [text for text in (places[0] if places else ()) if all(text in of_run for of_run in places)]
    return [(float(np.mean([of_run[text] for of_run in places])), text) for text in common]


def _caption(recorded: Recorded, smooth: int, band: Band, scores: str = "") -> str:
    """States which rounds scores are from, what the means and bands are over, the data, and the version."""
    parts = [*([scores] if scores else []), *_means(recorded, band)]
    if not scores and any(len({int(run.rounds[-1]) for run in group.runs}) > 1 for group in recorded.groups):
        parts.append("a line ends where the first of its runs ends")
    parts += [f"smoothed over {smooth} evaluated rounds"] if smooth > 1 else []
    parts.append(f"data: {data_text(recorded.data)}")
    parts += [*recorded.notes, f"rayfl\N{NO-BREAK SPACE}{rayfl.__version__}"]
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _means(recorded: Recorded, band: Band) -> list[str]:
    """Says whether lines and bands are over tasks, each averaged over its seeds, or over seeds."""
    by_group = [repetitions({run.key: run for run in group.runs}) for group in recorded.groups]
    counts, seeds = {len(repeats) for repeats in by_group}, {len(runs) for repeats in by_group for runs in repeats}
    over = {"seeds" if group.runs[0].task is None else "tasks" for group in recorded.groups}
    words = " or ".join(sorted(over))
    averaged = f"averaged over {_range(seeds)} seeds"
    if max(counts) > 1:
        mean = f"mean of {_range(counts)} {words}" + (f", each {averaged}" if max(seeds) > 1 else "")
        return [mean] if band == "none" else [mean, f"band: {_BANDS[band]} over {words}"]
    if max(seeds) > 1:
        return [f"one task, {averaged}"]
    return ["one run each" if len(recorded.groups) > 1 else "one run"]


def _range(counts: set[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(min(counts))
