"""A histogram of clients' scores by starting point, like Figure 2 of the CoPreFL paper."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rayfl.data.sources.stand_in import GENERATED_DATA
from rayfl.grid.table_picture import HIGHLIGHT, save
from rayfl.planning.headline import Headline
from rayfl.report.picture import DRAWING

COLOURS = ("#8c8c8c", "#2166ac", "#1b7837", "#762a83", "#b35806", "#35978f", "#bf812d", "#4d4d4d")
BINS = 20
TOGETHER = 5
"""Up to this many rows share a panel."""
WIDE = 4
"""Panels side by side."""


def draw_histogram(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    headline: Headline,
    title: str,
    generated: bool,
    path: Path,
    reference: str | None = None,
) -> None:
    """Writes the distribution of clients' scores, a panel for each column, as `path` with the suffixes .png and .pdf.

    Args:
        scores: Scores of all clients in all runs of a cell, by column and row.
        headline: The metric.
        title: Title above the picture.
        generated: Whether the data was generated; a note below the picture then says so.
        path: A path without a suffix.
        reference: The row to highlight.
    """
    with DRAWING:
        save(_histogram(scores, headline, title, generated, reference), path)


def _histogram(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    headline: Headline,
    title: str,
    generated: bool,
    reference: str | None,
) -> Figure:
    shown = [panel for column, by_row in scores.items() for panel in panels(column, by_row, reference)]
    wide = min(len(shown), WIDE)
    lines = math.ceil(len(shown) / wide)
    width = max(6.4, (4.6 if lines == 1 else 3.2) * wide)
    figure = Figure(figsize=(width, 4.4 if lines == 1 else 2.5 * lines), dpi=150, layout="constrained")
    axes = figure.subplots(lines, wide, squeeze=False, sharex=True, sharey=True)
    everything = [score for rows in scores.values() for of_row in rows.values() for score in of_row]
    edges = np.linspace(*((0.0, 1.0) if headline.is_share else (min(everything), max(everything))), BINS + 1)
    for panel, (name, by_row) in zip(axes.flat, shown, strict=False):
        colours = iter(COLOURS)
        for row, of_row in by_row.items():
            values = np.asarray(of_row)
            label = f"{row}: {headline.text(values.mean())} ± {headline.text(values.std())}"
            colour = HIGHLIGHT if row == reference else next(colours)
            _draw(panel, values, edges, label, colour, filled=row == reference)
        panel.set_title(name, fontsize=10, parse_math=False)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_axisbelow(True)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        for text in panel.legend(loc="best", fontsize=8 if lines == 1 else 6.5, framealpha=0.9).get_texts():
            text.set_parse_math(False)
    for panel in axes.flat[len(shown) :]:
        panel.set_axis_off()
    if headline.is_share:
        axes[0, 0].xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axes[0, 0].yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axis = f"client's {headline.metric.replace('_', ' ')}"
    figure.supxlabel(f"{axis} ({GENERATED_DATA.lower()})" if generated else axis, fontsize=9 if generated else 10)
    figure.supylabel("share of clients", fontsize=10)
    figure.suptitle(textwrap.fill(title, round(10.5 * width)), fontsize=12, fontweight="bold", parse_math=False)
    return figure


def panels(
    column: str, by_row: Mapping[str, Sequence[float]], reference: str | None
) -> Iterator[tuple[str, Mapping[str, Sequence[float]]]]:
    """Panels for a column: one with all rows, or, if too many would overlap, one for each row next to the reference.

    Args:
        column: A column of the grid.
        by_row: Clients' scores by row.
        reference: The row to show next to each of the others; without one, each row is alone.

    Yields:
        The title of the panel, and its scores by row.
    """
    if len(by_row) <= TOGETHER:
        yield column, by_row
        return
    for row in by_row:
        if row != reference:
            yield f"{column}: {row}", {name: by_row[name] for name in by_row if name in (reference, row)}


def _draw(axes: Axes, values: np.ndarray, edges: np.ndarray, label: str, colour: str, filled: bool) -> None:
    shares = np.histogram(values, edges)[0] / len(values)
    axes.stairs(shares, edges, color=colour, linewidth=1.6, label=label)
    if filled:
        axes.stairs(shares, edges, color=colour, alpha=0.15, fill=True)
