"""Tables of figures: starting points in rows, figures side by side, and how the rows differ from a reference."""

from __future__ import annotations

from collections.abc import Iterator

from rayfl.grid.entries import Entries
from rayfl.grid.page import Table
from rayfl.grid.schema import Grid


def figure_tables(grid: Grid, entries: Entries) -> Iterator[Table]:
    """Makes the tables of a grid's figures.

    Args:
        grid: Its rows, columns and figures.
        entries: What stands in them.

    Yields:
        A table for every column of the grid, then, with a reference, a table of differences for every column. Nothing
        if the grid has no figures.
    """
    if not grid.figures:
        return
    header = ["", *map(entries.label, grid.figures)]
    for column in grid.columns:
        beside = "; published figures in brackets" if entries.any_published(grid.figures, [column]) else ""
        yield Table(
            f"{column}: figures of the last evaluated round; {entries.repeated()}{beside}.",
            header,
            [[row, *(entries.text(name, row, column) for name in grid.figures)] for row in grid.rows],
        )
    if grid.reference is not None:
        others = [row for row in grid.rows if row != grid.reference]
        for column in grid.columns:
            yield Table(
                f"{column}: row less {grid.reference}; {_covered(grid)}",
                header,
                [
                    [row, *(entries.difference(name, row, grid.reference, column) for name in grid.figures)]
                    for row in others
                ],
            )


def _covered(grid: Grid) -> str:
    """Says what the intervals of the differences cover."""
    seeds = len(grid.seeds)
    if grid.tasks is None:
        return (
            "mean, and in brackets a 95 % t-interval, of the differences between runs of the same seed: it covers the "
            "choice of the seed."
        )
    left_out = (
        f", each averaged over {seeds} seeds: it covers the choice of tasks, not that of seeds"
        if seeds > 1
        else f" with seed {grid.seeds[0]}: it covers the choice of tasks, not that of the seed"
    )
    return f"mean, and in brackets a 95 % t-interval, of the differences on the same task{left_out}."
