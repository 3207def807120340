"""Draws lines with bands in panels that share one legend, for print."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from rayfl.errors import ScenarioError
from rayfl.runs.figures.quantities import Quantity, Series
from rayfl.runs.figures.style import (
    BAND_ALPHA,
    COLUMN_INCHES,
    EDGE_ALPHA,
    PAGE_INCHES,
    RC,
    LineStyle,
    balanced,
)
from rayfl.runs.pictures import DRAWING

GREY = "#666666"
CAPTION_POINTS = 5.8
_CAPTION_CHARACTERS_PER_INCH = 23
_MARKERS_PER_LINE = 8
_LABEL_CHARACTERS, _TITLE_CHARACTERS = 24, 34
_LEGEND_INCHES, _CAPTION_INCHES, _TITLE_INCHES = 0.16, 0.1, 0.17
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
        y: What its y axis shows.
        lines: In the order of the legend.
    """

    title: str
    y: Quantity
    lines: tuple[DrawnCurve, ...]


class NotebookFigure(Figure):
    """A figure that a notebook shows without `%matplotlib inline`."""

    def _repr_svg_(self) -> str:
        text = StringIO()
        with DRAWING, matplotlib.style.context(["default", RC]):
            self.savefig(text, format="svg")
        return text.getvalue()


def draw(
    panels: Sequence[Panel],
    x: Quantity,
    styles: Mapping[str, LineStyle],
    caption: str,
    width: str,
    share_y: bool,
) -> Figure:
    """Draws panels side by side or below one another.

    Args:
        panels: Row by row; the panels of a row show the same quantity, unless there is only one row.
        x: What all x axes show.
        styles: The look of a line by its label, in the order of the legend.
        caption: A line in small print below the panels.
        width: `column` or `page`.
        share_y: Whether panels of the same quantity have the same limits.
    """
    inches = COLUMN_INCHES if width == "column" else PAGE_INCHES
    rows = _rows(panels, width)
    across = max(map(len, rows))
    titled = any(panel.title for panel in panels)
    marked = any(line.boundaries for panel in panels for line in panel.lines)
    text = "\n".join(balanced(caption, int(inches * _CAPTION_CHARACTERS_PER_INCH)))
    each = inches / across
    height = len(rows) * (min(2.05, max(1.65, 0.62 * each)) + (titled + marked) * _TITLE_INCHES)
    height += (text.count("\n") + 1) * _CAPTION_INCHES
    figure = NotebookFigure(figsize=(inches, height), layout="constrained")
    axes_by_quantity: dict[Quantity, Axes] = {}
    grid = figure.add_gridspec(len(rows), across)
    for row, members in enumerate(rows):
        for column, panel in enumerate(members):
            same = axes_by_quantity.get(panel.y) if share_y else None
            axes = figure.add_subplot(grid[row, column], sharey=same)
            axes_by_quantity.setdefault(panel.y, axes)
            _draw_panel(axes, panel, styles)
            above = rows[row - 1][column].title if row and column < len(rows[row - 1]) else ""
            if panel.title and panel.title != above:
                axes.set_title(textwrap.fill(panel.title, _TITLE_CHARACTERS), parse_math=False, pad=11 if marked else 4)
            below = row + 1 < len(rows) and column < len(rows[row + 1])
            if not below:
                axes.set_xlabel(x.label)
            if column and same is not None:
                axes.tick_params(labelleft=False)
            if not column or panel.y != members[column - 1].y:
                label = textwrap.fill(panel.y.label.replace(" (", "\N{NO-BREAK SPACE}("), _LABEL_CHARACTERS)
                axes.set_ylabel(label, parse_math=False, fontsize=7 if "\n" in label else 8)
    for axes, panel in zip(figure.axes, [panel for members in rows for panel in members], strict=True):
        if panel.y.unit == "%":  # bands may reach past what a share can be
            low, high = axes.get_ylim()
            margin = 0.04 * (min(high, 100) - max(low, 0))
            axes.set_ylim(max(low, -margin), min(high, 100 + margin))
    if len(styles) > 1:
        lines = _draw_legend(figure, styles, max(line.series.repetitions for panel in panels for line in panel.lines))
        figure.set_figheight(height + lines * _LEGEND_INCHES + 0.06)
    figure.supxlabel(text, fontsize=CAPTION_POINTS, color=GREY, parse_math=False)
    return figure


def _rows(panels: Sequence[Panel], width: str) -> list[list[Panel]]:
    """Panels by row; a quantity with several panels starts a row of its own."""
    most = 1 if width == "column" else 3
    by_quantity: dict[Quantity, list[Panel]] = {}
    for panel in panels:
        by_quantity.setdefault(panel.y, []).append(panel)
    alone = all(len(group) == 1 for group in by_quantity.values())
    rows = []
    for members in [list(panels)] if alone else by_quantity.values():
        # four panels are two and two, not three and one
        across = math.ceil(len(members) / math.ceil(len(members) / most))
        rows += [members[start : start + across] for start in range(0, len(members), across)]
    return rows


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, LineStyle]) -> None:
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
    axes.set_xlim(left=min([0.0, *(float(line.series.x[0]) for line in panel.lines)]))
    _mark_phases(axes, panel, styles)


def _whole(panel: Panel) -> bool:
    return all(np.array_equal(line.series.x, np.round(line.series.x)) for line in panel.lines)


def _number_format(panel: Panel) -> EngFormatter | FuncFormatter:
    if max(line.series.x[-1] for line in panel.lines) >= 20_000:
        return EngFormatter(sep="")
    return FuncFormatter(lambda value, _: f"{value:,.6g}")


def _mark_phases(axes: Axes, panel: Panel, styles: Mapping[str, LineStyle]) -> None:
    """A vertical line where a phase ends: grey where lines agree on it, else in the colour of its own line."""
    owners: dict[tuple[str, float], list[str]] = {}
    for line in panel.lines:
        for place, text in line.boundaries:
            owners.setdefault((text, place), []).append(line.label)
    named: set[str] = set()
    for (text, place), labels in sorted(owners.items()):
        alone = len(labels) == 1 and len(panel.lines) > 1
        colour = styles[labels[0]].colour if alone else GREY
        axes.axvline(place, color=colour, linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
        if text in named:
            continue
        named.add(text)
        colour = colour if sum(other == text for other, _ in owners) == 1 else GREY
        left = place < 0.5 * max(line.series.x[-1] for line in panel.lines)
        axes.annotate(
            text,
            (place, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0 if left else 2, 2),
            textcoords="offset points",
            ha="left" if left else "right",
            fontsize=6.2,
            color=colour,
            parse_math=False,
        )


def _draw_legend(figure: Figure, styles: Mapping[str, LineStyle], repetitions: int) -> int:
    """One legend above all panels, in as many columns as fit; returns its number of lines of text."""
    handles = [
        Line2D(
            [],
            [],
            color=look.colour,
            linestyle=look.dash,
            linewidth=1.3 if repetitions > 1 else 0.9,
            marker=look.marker,
            markersize=3.2,
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
        for look in styles.values()
    ]

    def made(labels: Sequence[str], columns: int) -> Legend | None:
        """The legend if it fits into the figure."""
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns)
        for text in legend.get_texts():
            text.set_parse_math(False)
        if legend.get_window_extent().width <= figure.bbox.width * 0.95:
            return legend
        legend.remove()
        return None

    labels = list(styles)
    most = range(min(len(labels), 6), 0, -1)
    for columns in dict.fromkeys(math.ceil(len(labels) / math.ceil(len(labels) / columns)) for columns in most):
        if made(labels, columns):
            return math.ceil(len(labels) / columns)
    # one column is too wide: its labels wrap, at the widest width that fits
    for width in range(max(map(len, labels)) - 1, 0, -1):
        wrapped = ["\n".join(textwrap.wrap(label, width, break_on_hyphens=False)) for label in labels]
        if made(wrapped, 1):
            return sum(text.count("\n") + 1 for text in wrapped)
    raise ScenarioError("the legend is wider than the figure; give short labels, or width = 'page'")
