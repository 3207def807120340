"""The page of a grid: tables with published values, remarks, and a list of runs.

As table.md, on a terminal, and as table.parquet, with a row for every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from rayfl.console import TextTable
from rayfl.data.sources.stand_in import GENERATED_DATA
from rayfl.durable import atomic_write
from rayfl.studies.grid.entries import Entries, figure_tables
from rayfl.studies.grid.results import TAIL, CellRun, FinishedRun
from rayfl.studies.grid.schema import Grid, Metric
from rayfl.wording import duration


@dataclass(frozen=True)
class Remark:
    """A sentence under the tables; `warns` makes it stand out."""

    text: str
    warns: bool = False


@dataclass(frozen=True)
class Page:
    """The page of a grid: tables, remarks below them, and lists of runs at the end."""

    title: str
    tables: Sequence[TextTable]
    remarks: Sequence[Remark]
    lists: Sequence[TextTable]

    def markdown(self) -> str:
        """Returns the page as a Markdown document."""
        parts = [f"# {self.title}"]
        for table in self.tables:
            parts += [table.caption, table.markdown()]
        parts += [f"**{remark.text}**" if remark.warns else remark.text for remark in self.remarks]
        for table in self.lists:
            parts += [f"## {table.caption}", table.markdown()]
        return "\n\n".join(parts) + "\n"

    def show(self, console: Console) -> None:
        """Prints the page, without its title."""
        for table in [*self.tables, *self.lists]:
            console.print()
            console.print(Text(table.caption, style="italic"), soft_wrap=True)
            console.print(table.rich())
        for remark in self.remarks:
            console.print(Text(remark.text, style="bold red" if remark.warns else ""), soft_wrap=True)


METRICS = ("best", "last", "mean_last_5")
RUNS = pa.schema(
    [
        ("row", pa.string()),
        ("column", pa.string()),
        ("seed", pa.int64()),
        ("task", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("metric", pa.string()),
        ("best", pa.float64()),
        ("best_round", pa.int64()),
        ("last", pa.float64()),
        ("mean_last_5", pa.float64()),
        ("rounds", pa.int64()),
        ("test_loss", pa.float64()),
        ("seconds", pa.float64()),
        ("data", pa.string()),
        ("data_source", pa.string()),
        *((f"published_{metric}", pa.float64()) for metric in METRICS),
    ]
)
"""A row per run that finished, failed or diverged (`status`, `reason`): the headline metric, in percent if it is a
share, and test_loss after the last round; null if it did not finish. The figures of the grid follow under their names,
and published values (of a mean and deviation, the mean) as `published_<figure>`."""


def write_runs(runs: Sequence[CellRun], figures: Sequence[str], entries: Entries, path: Path) -> None:
    """Writes the columns of `RUNS` and of the figures.

    Args:
        runs: In the order of the rows.
        figures: Names of the grid's figures; those among `RUNS`, such as test_loss, get no second column.
        entries: Source of the published values.
        path: The file.
    """
    others = [name for name in figures if name not in RUNS.names]
    schema = RUNS
    for name in [*others, *(f"published_{figure}" for figure in figures)]:
        schema = schema.append(pa.field(name, pa.float64()))
    rows = [
        {"status": "finished"}
        | {name: value for name, value in vars(run).items() if name in RUNS.names}
        | ({"metric": run.headline.reported} | _some(run.figures, others) if isinstance(run, FinishedRun) else {})
        | {f"published_{name}": _mean(entries.published(name, run.row, run.column)) for name in (*METRICS, *figures)}
        for run in runs
    ]
    with atomic_write(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary)


def _some(figures: Mapping[str, float], names: Sequence[str]) -> dict[str, Any]:
    return {name: figures[name] for name in names}


def _mean(published: float | tuple[float, float] | None) -> float | None:
    return published[0] if isinstance(published, tuple) else published


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
