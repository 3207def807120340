"""The pictures next to the tables of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rayfl.grid.cells import Cell
from rayfl.grid.client_scores import client_scores
from rayfl.grid.histogram import draw_histogram
from rayfl.grid.results import CellRun, FinishedRun
from rayfl.grid.schema import Grid
from rayfl.grid.table import GridTable
from rayfl.grid.table_picture import draw_tables
from rayfl.report.reason import one_line

_NO_SCORES = "the runs recorded no scores of single clients (evaluation.per_client)"


def draw(grid: Grid, table: GridTable, runs: Mapping[Cell, CellRun], folder: Path, console: Console) -> None:
    """Draws table.png and clients.png, and both as PDF, for a grid with figures.

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
        _warn(console, f"could not draw the pictures of the grid: {one_line(error)}")


def _draw_clients(grid: Grid, finished: Mapping[Cell, FinishedRun], folder: Path, console: Console) -> None:
    scores: dict[str, dict[str, list[float]]] = {}
    clients = 0
    for cell, run in finished.items():
        found = client_scores(cell.folder, run.headline)
        clients += len(found)
        if defined := [score for score in found if score is not None]:
            scores.setdefault(cell.column, {}).setdefault(cell.row, []).extend(defined)
    if not scores:
        why = "the labels of every client leave the metric undefined" if clients else _NO_SCORES
        _warn(console, f"no histogram of clients: {why}")
        return
    drawn = sum(len(found) for by_row in scores.values() for found in by_row.values())
    which = "all clients" if drawn == clients else f"{drawn:,} of {clients:,} scores of clients, the others undefined"
    runs = list(finished.values())
    tasks, seeds = ({getattr(run, of) for run in runs} for of in ("task", "seed"))
    repeated = f"{f'{len(tasks)} tasks, ' if grid.tasks else ''}{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    draw_histogram(
        scores,
        runs[0].headline,
        f"{grid.title or grid.name}: {which} ({repeated})",
        any(run.data_source == "generated" for run in runs),
        folder / "clients",
        grid.reference,
    )


def _warn(console: Console, text: str) -> None:
    console.print(Text(f"warning: {text}", style="yellow"), soft_wrap=True)
