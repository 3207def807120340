"""A histogram of clients' scores by starting point, as CoPreFL's Figure 2 has it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rayfl.engine.headline import Headline
from rayfl.grid.table_picture import HIGHLIGHT, save
from rayfl.report.curves import DRAWING

COLOURS = ("#8c8c8c", "#2166ac", "#1b7837", "#762a83", "#b35806", "#35978f", "#bf812d", "#4d4d4d")
BINS = 20


def draw_histogram(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    headline: Headline,
    title: str,
    generated: bool,
    path: Path,
    reference: str | None = None,
) -> None:
    """Writes how clients' scores are distributed, a panel per column, as `path` with the suffixes .png and .pdf.

    Args:
        scores: Of all clients in all runs of a cell, by column and row.
        headline: The metric that was scored.
        title: Stands above.
        generated: Whether the data was generated, which is then said below.
        path: Without a suffix.
        reference: The row that stands out.
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
    figure = Figure(figsize=(max(6.4, 4.6 * len(scores)), 4.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(scores), squeeze=False, sharey=True)[0]
    everything = [score for rows in scores.values() for of_row in rows.values() for score in of_row]
    edges = np.linspace(*((0.0, 1.0) if headline.is_share else (min(everything), max(everything))), BINS + 1)
    rows = list(dict.fromkeys(row for of_column in scores.values() for row in of_column))
    colours = {row: COLOURS[index % len(COLOURS)] for index, row in enumerate(rows)}
    for panel, (column, by_row) in zip(panels, scores.items(), strict=True):
        for row, of_row in by_row.items():
            colour = HIGHLIGHT if row == reference else colours[row]
            values = np.asarray(of_row)
            label = f"{row}: {headline.text(values.mean())} ± {headline.text(values.std())}"
            _draw(panel, values, edges, label, colour, filled=row == reference)
        panel.set_title(column, fontsize=10, parse_math=False)
        panel.set_xlabel(f"client's {headline.metric.replace('_', ' ')}")
        if headline.is_share:
            panel.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_axisbelow(True)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        for text in panel.legend(loc="best", fontsize=8, framealpha=0.9).get_texts():
            text.set_parse_math(False)
    panels[0].set_ylabel("share of clients")
    panels[0].yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    figure.suptitle(
        textwrap.fill(title, 68 if len(scores) == 1 else 90), fontsize=12, fontweight="bold", parse_math=False
    )
    if generated:
        figure.supxlabel("GENERATED DATA, no real data set", fontsize=9, color=HIGHLIGHT, fontweight="bold")
    return figure


def _draw(axes: Axes, values: np.ndarray, edges: np.ndarray, label: str, colour: str, filled: bool) -> None:
    shares = np.histogram(values, edges)[0] / len(values)
    axes.stairs(shares, edges, color=colour, linewidth=1.6, label=label)
    if filled:
        axes.stairs(shares, edges, color=colour, alpha=0.15, fill=True)
