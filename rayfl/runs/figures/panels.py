"""Draws lines with bands in panels that share one legend, for print."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from rayfl.runs.figures.legend import draw_legend
from rayfl.runs.figures.notebook import NotebookFigure
from rayfl.runs.figures.phase_marks import ROW_POINTS, arrange, mark_phases
from rayfl.runs.figures.quantities import Quantity, Series
from rayfl.runs.figures.style import (
    BAND_ALPHA,
    COLUMN_INCHES,
    DOTS,
    EDGE_ALPHA,
    GREY,
    PAGE_INCHES,
    RASTERISED,
    LineStyle,
    Width,
    balanced,
)

CAPTION_POINTS = 5.8
_CAPTION_CHARACTERS_PER_INCH = 23
_MARKERS_PER_LINE = 8
_LABEL_CHARACTERS, _TITLE_CHARACTERS = 24, 34
_HEADING_CHARACTERS_PER_INCH = 12
_LEGEND_INCHES, _CAPTION_INCHES, _TITLE_INCHES, _HEADING_INCHES = 0.16, 0.1, 0.15, 0.2
"""Heights of a line of text."""


@dataclass(frozen=True, eq=False)
class DrawnCurve:
    """A line of a panel.

    Attributes:
        label: Its name in the legend.
        series: Its mean and band.
        boundaries: Where one phase ends and the next begins, on the x axis, with their names: `cyclic → federated`.
    """

    label: str
    series: Series
    boundaries: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes:
        title: Above it; empty for none.
        x: What its x axis shows.
        y: What its y axis shows.
        lines: In the order of the legend.
    """

    title: str
    x: Quantity
    y: Quantity
    lines: tuple[DrawnCurve, ...]


def draw(
    panels: Sequence[Panel],
    styles: Mapping[str, LineStyle],
    caption: str,
    width: Width,
    share_y: bool = False,
    heading: str = "",
) -> Figure:
    """Draws panels side by side or below one another.

    Args:
        panels: Row by row; the panels of a row show the same quantity, unless there is only one row.
        styles: The look of a line by its label, in the order of the legend.
        caption: A line in small print below the panels.
        width: `column` or `page`.
        share_y: Whether panels of the same quantity have the same limits.
        heading: Above the figure; empty for none.
    """
    inches = COLUMN_INCHES if width == "column" else PAGE_INCHES
    rows = _rows(panels, width)
    across = max(map(len, rows))
    each = inches / across
    figure = NotebookFigure(figsize=(inches, 2.0 * len(rows)), layout="constrained")
    axes_by_quantity: dict[Quantity, Axes] = {}
    names: dict[Axes, list[Annotation]] = {}
    grid = figure.add_gridspec(len(rows), across)
    for row, members in enumerate(rows):
        for column, panel in enumerate(members):
            same = axes_by_quantity.get(panel.y) if share_y else None
            axes = figure.add_subplot(grid[row, column], sharey=same)
            axes_by_quantity.setdefault(panel.y, axes)
            names[axes] = _draw_panel(axes, panel, styles)
            below = row + 1 < len(rows) and column < len(rows[row + 1])
            if not below or rows[row + 1][column].x != panel.x:
                axes.set_xlabel(panel.x.label)
            if column and same is not None:
                axes.tick_params(labelleft=False)
            if not column or panel.y != members[column - 1].y:
                label = textwrap.fill(panel.y.label.replace(" (", "\N{NO-BREAK SPACE}("), _LABEL_CHARACTERS)
                axes.set_ylabel(label, fontsize=7 if "\n" in label else 8)
    for axes, panel in zip(figure.axes, itertools.chain(*rows), strict=True):
        if panel.y.unit == "%":  # bands may reach past what a share can be
            low, high = axes.get_ylim()
            margin = 0.04 * (min(high, 100) - max(low, 0))
            axes.set_ylim(max(low, -margin), min(high, 100 + margin))
    text = "\n".join(balanced(caption, int(inches * _CAPTION_CHARACTERS_PER_INCH)))
    figure.supxlabel(text, fontsize=CAPTION_POINTS, color=GREY)
    height = len(rows) * min(2.05, max(1.65, 0.62 * each)) + (text.count("\n") + 1) * _CAPTION_INCHES
    lines = textwrap.wrap(heading, int(inches * _HEADING_CHARACTERS_PER_INCH))
    height += len(lines) * _HEADING_INCHES
    if len(styles) > 1:
        figure.set_figheight(height)
        entries = draw_legend(figure, styles, _most_repetitions(panels), "\n".join(lines))
        height += _LEGEND_INCHES * entries + 0.06
    elif lines:
        figure.suptitle("\n".join(lines))
    figure.set_figheight(height)
    marks = arrange(figure, names, each) if any(names.values()) else 0
    above = _title_panels(figure, rows, 4 + ROW_POINTS * marks)
    figure.set_figheight(height + len(rows) * (above * _TITLE_INCHES + marks * ROW_POINTS / 72))
    return figure


def _title_panels(figure: Figure, rows: Sequence[Sequence[Panel]], pad: float) -> int:
    """Titles panels above which there is no panel of the same title; returns the most lines of a title."""
    most, axes = 0, iter(figure.axes)
    for row, members in enumerate(rows):
        for column, panel in enumerate(members):
            own = next(axes)
            above = rows[row - 1][column].title if row and column < len(rows[row - 1]) else ""
            if panel.title and panel.title != above:
                lines = textwrap.wrap(panel.title, _TITLE_CHARACTERS)
                own.set_title("\n".join(lines), pad=pad)
                most = max(most, len(lines))
    return most


def _most_repetitions(panels: Sequence[Panel]) -> int:
    return max(line.series.repetitions for panel in panels for line in panel.lines)


def _rows(panels: Sequence[Panel], width: str) -> list[list[Panel]]:
    """Panels by row; a pair of quantities with several panels starts a row of its own."""
    most = 1 if width == "column" else 3
    by_quantity: dict[tuple[Quantity, Quantity], list[Panel]] = {}
    for panel in panels:
        by_quantity.setdefault((panel.x, panel.y), []).append(panel)
    alone = all(len(group) == 1 for group in by_quantity.values())
    rows = []
    for members in [list(panels)] if alone else by_quantity.values():
        # four panels are two and two, not three and one
        across = math.ceil(len(members) / math.ceil(len(members) / most))
        rows += [members[start : start + across] for start in range(0, len(members), across)]
    return rows


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, LineStyle]) -> list[Annotation]:
    """Draws a panel; returns the names of its phase switches."""
    factor = panel.y.factor
    for line in panel.lines:
        look, curve = styles[line.label], line.series
        several = curve.repetitions > 1
        if several and not np.array_equal(curve.low, curve.high):
            axes.fill_between(
                curve.x,
                factor * curve.low,
                factor * curve.high,
                facecolor=(look.colour, BAND_ALPHA),
                edgecolor=(look.colour, EDGE_ALPHA),
                linestyle=look.dash,
                linewidth=0.4,
            )
        if look.dash == DOTS:
            _draw_dots(axes, curve.x, factor * curve.mean, look)
            continue
        place = list(styles).index(line.label)
        step = max(1, len(curve.x) // _MARKERS_PER_LINE)
        offset = place * step // max(1, len(styles))
        axes.plot(
            curve.x,
            factor * curve.mean,
            color=look.colour,
            linestyle=look.dash,
            linewidth=1.3 if several else 0.9,
            marker=look.marker,
            markersize=3.2,
            markeredgecolor="white",
            markeredgewidth=0.4,
            markevery=(offset, step) if offset < len(curve.x) else 1,
        )
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=_whole(panel)))
    axes.xaxis.set_major_formatter(_number_format(panel))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.set_xlim(*_limits(panel))
    return mark_phases(axes, {line.label: line.boundaries for line in panel.lines}, styles)


def _draw_dots(axes: Axes, x: np.ndarray, y: np.ndarray, look: LineStyle) -> None:
    """Draws a dot for each value, smaller and fainter the more there are."""
    axes.plot(
        x,
        y,
        linestyle="none",
        color=look.colour,
        marker=look.marker,
        markersize=float(np.clip(14 / len(x) ** 0.3, 0.9, 3.6)),
        markeredgewidth=0,
        alpha=float(np.clip(8 / len(x) ** 0.4, 0.25, 0.9)),
        rasterized=len(x) > RASTERISED,
    )


def _limits(panel: Panel) -> tuple[float, float]:
    """From 0, or from the first value if it is far from 0, to the last, with a margin for the markers at both ends."""
    first = min(float(line.series.x[0]) for line in panel.lines)
    last = max(float(line.series.x[-1]) for line in panel.lines)
    if 0 < first < 0.25 * last or first == last:
        first = min(0.0, first)
    margin = 0.02 * (last - first) or 0.5
    return first - margin, last + margin


def _whole(panel: Panel) -> bool:
    return all(np.array_equal(line.series.x, np.round(line.series.x)) for line in panel.lines)


def _number_format(panel: Panel) -> EngFormatter | FuncFormatter:
    if max(line.series.x[-1] for line in panel.lines) >= 20_000:
        return EngFormatter(sep="")
    return FuncFormatter(lambda value, _: f"{value:,.6g}")
