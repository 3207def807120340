"""The legend above all panels of a figure, in as many columns as fit."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from rayfl.errors import ScenarioError
from rayfl.runs.figures.style import LineStyle


def draw_legend(figure: Figure, styles: Mapping[str, LineStyle], repetitions: int, heading: str = "") -> int:
    """Draws one legend above all panels, in as many columns as fit.

    Args:
        figure: The figure.
        styles: The look of a line by its label.
        repetitions: Runs behind a line, if there are several.
        heading: Above the labels, in lines that fit; matplotlib would draw a title of the figure over the legend.

    Returns:
        The number of lines of text, without the heading.

    Raises:
        ScenarioError: No label fits.
    """
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
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
        _head(legend, heading)
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


def _head(legend: Legend, heading: str) -> None:
    if heading:
        legend.set_title(heading, FontProperties(size=matplotlib.rcParams["figure.titlesize"], weight="bold"))
