"""The pictures next to the tables of a grid: the tables, and a histogram of clients' scores by starting point.

The histogram is like Figure 2 of the CoPreFL paper.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from rich.console import Console

from rayfl.console import TextTable, print_warning
from rayfl.data.sources.stand_in import GENERATED_DATA
from rayfl.engine.plan.headline import Headline
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.client_scores import scores_by_set
from rayfl.runs.figures.style import COLOURS, SCREEN, drawing, write
from rayfl.studies.grid.cells import Cell
from rayfl.studies.grid.results import CellRun, FinishedRun
from rayfl.studies.grid.schema import Grid
from rayfl.studies.grid.table import GridTable
from rayfl.studies.tables import TablePage
from rayfl.wording import one_line

INK, PALE, HIGHLIGHT = "#222222", "#555555", "#c00000"
CHARACTER, SMALL_CHARACTER, LINE, MARGIN = 0.088, 0.068, 0.27, 0.3
"""Inches: width of a character in tables and in texts, height of a line, width of the margin."""


class _Part(NamedTuple):
    """A text; `x` is its left or right edge, in inches from the margin."""

    x: float
    text: str
    align: Literal["left", "right"] = "left"


class _Line(NamedTuple):
    """A line of the picture, with a rule of the given weight above it."""

    parts: Sequence[_Part] = ()
    size: float = 9
    colour: str = PALE
    bold: bool = False
    rule: float = 0
    height: float = LINE


def draw_tables(page: TablePage, path: Path) -> None:
    """Writes the tables of a page below each other, with its remarks, as `path` with the suffixes .png and .pdf.

    Args:
        page: The page; its lists are not drawn.
        path: A path without a suffix.
    """
    with drawing(SCREEN):
        _save(_figure(page), path)


def _figure(page: TablePage) -> Figure:
    width = max(6.0, *(float(sum(_widths(table))) for table in page.tables))
    lines = list(_lines(page, width))
    whole, height = width + 2 * MARGIN, sum(line.height for line in lines) + 2 * MARGIN
    figure = Figure(figsize=(whole, height))
    top = height - MARGIN
    for line in lines:
        if line.rule:
            ends, y = [MARGIN / whole, 1 - MARGIN / whole], [top / height] * 2
            figure.add_artist(Line2D(ends, y, color=INK, linewidth=line.rule))
        for part in line.parts:
            figure.text(
                (MARGIN + part.x) / whole,
                (top - line.height / 2) / height,
                part.text,
                fontsize=line.size,
                ha=part.align,
                va="center_baseline",
                color=line.colour,
                fontweight="bold" if line.bold else "normal",
            )
        top -= line.height
    return figure


def _lines(page: TablePage, width: float) -> Iterator[_Line]:
    for text in textwrap.wrap(page.title, int(width / CHARACTER * 0.75)):
        yield _Line([_Part(0, text)], size=13, colour=INK, bold=True)
    for table in page.tables:
        yield _Line(height=LINE / 2)
        for text in textwrap.wrap(table.caption, int(width / SMALL_CHARACTER)):
            yield _Line([_Part(0, text)], height=0.8 * LINE)
        yield _Line(height=0.2 * LINE)
        ends = np.cumsum(_widths(table)) * (width / sum(_widths(table)))
        for number, row in enumerate([table.header, *table.rows]):
            first, *others = row
            parts = [
                _Part(0, first),
                *(_Part(float(x), text, "right") for x, text in zip(ends[1:], others, strict=True)),
            ]
            yield _Line(parts, size=9.5, colour=INK, bold=not number, rule=(1.4, 0.8)[number] if number < 2 else 0)
        yield _Line(rule=1.4, height=LINE / 2)
    for note in page.notes:
        for text in textwrap.wrap(note, int(width / SMALL_CHARACTER)):
            yield _Line([_Part(0, text)], height=0.8 * LINE)
        yield _Line(height=0.3 * LINE)


def _widths(table: TextTable) -> list[float]:
    """Widths of the columns in inches, with room between them."""
    return [CHARACTER * (max(map(len, column)) + 3) for column in zip(table.header, *table.rows, strict=True)]


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
    with drawing(SCREEN):
        _save(_histogram(scores, headline, title, generated, reference), path)


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
    figure = Figure(figsize=(width, 4.4 if lines == 1 else 2.5 * lines), layout="constrained")
    axes = figure.subplots(lines, wide, squeeze=False, sharex=True, sharey=True)
    everything = [score for rows in scores.values() for of_row in rows.values() for score in of_row]
    edges = np.linspace(*((0.0, 1.0) if headline.is_share else (min(everything), max(everything))), BINS + 1)
    for panel, (name, by_row) in zip(axes.flat, shown, strict=False):
        colours = itertools.cycle(COLOURS)
        for row, of_row in by_row.items():
            values = np.asarray(of_row)
            label = f"{row}: {headline.text(values.mean())} ± {headline.text(values.std())}"
            colour = HIGHLIGHT if row == reference else next(colours)
            _draw(panel, values, edges, label, colour, filled=row == reference)
        panel.set_title(name)
        panel.legend(loc="best", fontsize="medium" if lines == 1 else "x-small")
    for panel in axes.flat[len(shown) :]:
        panel.set_axis_off()
    if headline.is_share:
        axes[0, 0].xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axes[0, 0].yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axis = f"client's {headline.metric.replace('_', ' ')}"
    figure.supxlabel(f"{axis} ({GENERATED_DATA.lower()})" if generated else axis)
    figure.supylabel("share of clients")
    figure.suptitle(textwrap.fill(title, round(10.5 * width)))
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


def draw(grid: Grid, table: GridTable, runs: Mapping[Cell, CellRun], folder: Path, console: Console) -> None:
    """Draws the tables of a grid with figures, and a histogram where runs recorded scores of clients, as PNG and PDF.

    If drawing fails, it prints a warning: the records of the grid are complete without pictures.

    Args:
        grid: The grid.
        table: Its tables.
        runs: Runs that finished or failed.
        folder: The folder of the grid.
        console: Where warnings are printed.
    """
    finished = {cell: run for cell, run in runs.items() if isinstance(run, FinishedRun)}
    if not grid.figures or not finished:
        return
    try:
        page = table.page()
        draw_tables(replace(page, tables=page.tables[len(grid.metrics) :]), folder / "table")
        _draw_clients(grid, finished, folder, console)
    except Exception as error:  # matplotlib and the fonts of a machine may raise anything
        print_warning(console, f"could not draw the pictures of the grid: {one_line(error)}")


def _draw_clients(grid: Grid, finished: Mapping[Cell, FinishedRun], folder: Path, console: Console) -> None:
    scores: dict[str, dict[str, list[float]]] = {}
    clients = 0
    for cell, run in finished.items():
        for of in scores_by_set(RunArchive(cell.folder), run.headline)[:1]:
            clients += len(of)
            if len(of.ranking):
                scores.setdefault(cell.column, {}).setdefault(cell.row, []).extend(of.values[of.ranking].tolist())
    if not clients:
        return
    if not scores:
        print_warning(console, "no histogram of clients: the labels of every client leave the metric undefined")
        return
    drawn = sum(len(cell_scores) for by_row in scores.values() for cell_scores in by_row.values())
    which = "all clients" if drawn == clients else f"{drawn:,} of {clients:,} scores of clients, the others undefined"
    runs = list(finished.values())
    tasks, seeds = ({getattr(run.place, of) for run in runs} for of in ("task", "seed"))
    repeated = f"{f'{len(tasks)} tasks, ' if grid.tasks else ''}{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    draw_histogram(
        scores,
        runs[0].headline,
        f"{grid.title or grid.name}: {which} ({repeated})",
        any(run.data_source == "generated" for run in runs),
        folder / "clients",
        grid.reference,
    )


def _save(figure: Figure, path: Path) -> None:
    for suffix in (".png", ".pdf"):
        write(figure, path.with_suffix(suffix))
