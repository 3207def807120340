"""The page of a grid: tables with published values, remarks, and a list of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from rayfl.data.sources.stand_in import GENERATED_DATA
from rayfl.durable import atomic_write
from rayfl.grid.entries import Entries
from rayfl.grid.figure_tables import figure_tables
from rayfl.grid.page import Page, Remark
from rayfl.grid.parquet import write_runs
from rayfl.grid.results import TAIL, CellRun, FinishedRun
from rayfl.grid.schema import Grid, Metric
from rayfl.report.formatting import duration
from rayfl.report.text_table import TextTable

_IN_WORDS: dict[Metric, str] = {
    "best": "of the best evaluated round",
    "last": "of the last round",
    "mean_last_5": f"mean of the last {TAIL} evaluated rounds",
}


class GridTable:
    """The table of a grid, for the runs so far.

    Args:
        grid: The grid.
        runs: Runs that finished or failed, in the order of the grid.
        changes: Changes that the command line made to the grid.
    """

    def __init__(self, grid: Grid, runs: Sequence[CellRun], changes: Sequence[str] = ()) -> None:
        self._grid, self._runs, self._changes = grid, runs, changes
        self._entries = Entries(grid, runs)

    def write(self, folder: Path) -> None:
        """Writes table.md, for reading, and table.parquet, with the columns of `RUNS` and the figures."""
        with atomic_write(folder / "table.md") as path:
            path.write_text(self.markdown(), encoding="utf-8")
        write_runs(self._runs, self._grid.figures, self._entries, folder / "table.parquet")

    def markdown(self) -> str:
        """Returns a table for every metric, the tables of figures, and one of all runs."""
        return self.page().markdown()

    def show(self, console: Console) -> None:
        """Prints a table for every metric, the tables of figures, and one of the failed runs."""
        self.page(all_runs=False).show(console)

    def cell(self, metric: Metric, row: str, column: str) -> str:
        """Returns the text of a cell; see `Entries.text`."""
        return self._entries.text(metric, row, column)

    def page(self, all_runs: bool = True) -> Page:
        """Returns all tables, and lists of the failed runs and, with `all_runs`, of the finished ones."""
        tables = [
            TextTable(
                self._caption(metric),
                ["", *self._grid.columns],
                [[row, *(self.cell(metric, row, column) for column in self._grid.columns)] for row in self._grid.rows],
            )
            for metric in self._grid.metrics
        ]
        tables += figure_tables(self._grid, self._entries)
        return Page(self._grid.title or self._grid.name, tables, list(self._remarks()), list(self._lists(all_runs)))

    def _lists(self, all_runs: bool) -> Iterator[TextTable]:
        task = ["task"] if self._grid.tasks else []
        if self._entries.finished and all_runs:
            figures = [*("best", "in round", f"mean of the last {TAIL}", "last"), *self._grid.figures, "rounds", "time"]
            rows = [_figures(run) for run in self._entries.finished]
            yield TextTable("Runs", ["", "", "seed", *task, *figures], rows)
        if self._entries.failed:
            rows = [[*_place(run), run.status, run.reason] for run in self._entries.failed]
            yield TextTable("Failed runs", ["", "", "seed", *task, "", "reason"], rows)

    def _caption(self, metric: Metric) -> str:
        beside = self._entries.any_published([metric], list(self._grid.columns))
        published = "; published figures in brackets" if beside else ""
        measured = dict.fromkeys(
            f"{run.headline.reported_words}{' in percent' if run.headline.is_share else ''}"
            f"{'' if run.headline.on == 'test' else f' (rounds ranked on {run.headline.on} samples)'}"
            for run in self._entries.finished
        ) or ["headline metric"]
        what = ", ".join(measured)
        return f"{what[0].upper()}{what[1:]}, {_IN_WORDS[metric]}; {self._entries.repeated()}{published}."

    def _remarks(self) -> Iterator[Remark]:
        if self._grid.note:
            yield Remark(self._grid.note)
        if self._changes:
            yield Remark(f"Not the grid as shipped: {', '.join(self._changes)}.", warns=True)
        generated = dict.fromkeys(run.data for run in self._entries.finished if run.data_source == "generated")
        if generated:
            yield Remark(f"{GENERATED_DATA}: {', '.join(generated)}. Each run's environment.json describes it.")
        for data, source, described in dict.fromkeys(
            (run.data, run.data_source, run.data_description)
            for run in self._entries.finished
            if run.data_source != "generated"
        ):
            yield Remark(f"Data: {data}, from {source}. {described}.")


def _figures(run: FinishedRun) -> list[str]:
    figures = [f"{run.best:.2f}", f"{run.best_round}", f"{run.mean_last_5:.2f}", f"{run.last:.2f}"]
    figures += [f"{value:.2f}" for value in run.figures.values()]
    return [*_place(run), *figures, f"{run.rounds}", duration(run.seconds)]


def _place(run: CellRun) -> list[str]:
    return [run.row, run.column, f"{run.seed}", *([] if run.task is None else [f"{run.task}"])]
