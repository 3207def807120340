"""Tables of figures: rows against figures, and differences of the rows to a reference."""

from __future__ import annotations

from collections.abc import Iterator

from rayfl.grid.entries import Entries
from rayfl.grid.schema import Grid
from rayfl.report.text_table import TextTable


def figure_tables(grid: Grid, entries: Entries) -> Iterator[TextTable]:
    """Makes the tables of a grid's figures.

    Args:
        grid: The grid.
        entries: The entries of the tables.

    Yields:
        A table for every column of the grid, then, with a reference, a table of differences for every column. Nothing
        if the grid has no figures.
    """
    if not grid.figures:
        return
    header = ["", *map(entries.label, grid.figures)]
    for column in grid.columns:
        beside = "; published figures in brackets" if entries.any_published(grid.figures, [column]) else ""
        yield TextTable(
            f"{column}: last evaluated round; {entries.repeated()}{beside}.",
            header,
            [[row, *(entries.text(name, row, column) for name in grid.figures)] for row in grid.rows],
        )
    if grid.reference is not None:
        others = [row for row in grid.rows if row != grid.reference]
        for column in grid.columns:
            yield TextTable(
                f"{column}: row minus {grid.reference}; {_covered(grid)}",
                header,
                [
                    [row, *(entries.difference(name, row, grid.reference, column) for name in grid.figures)]
                    for row in others
                ],
            )


def _covered(grid: Grid) -> str:
    """The end of the caption: the source of variation that the intervals cover."""
    seeds = len(grid.seeds)
    if grid.tasks is None:
        return "mean difference between runs with the same seed, and in brackets its 95 % t-interval over seeds."
    each, other = (f", averaged over {seeds} seeds", "seeds") if seeds > 1 else (f" with seed {grid.seeds[0]}", "seed")
    return (
        f"mean difference on the same task{each}, and in brackets its 95 % t-interval over tasks, which does not cover "
        f"the choice of the {other}."
    )
