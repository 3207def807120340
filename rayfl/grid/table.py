"""A grid's table: the headline metric of every cell, mean and spread over seeds, beside what was published."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from rayfl.durable import atomic_write
from rayfl.grid.page import Page, Remark, Table
from rayfl.grid.results import TAIL, CellRun, FailedRun, FinishedRun
from rayfl.grid.schema import Grid, Metric
from rayfl.report.formatting import duration

RUNS = pa.schema(
    [
        ("row", pa.string()),
        ("column", pa.string()),
        ("seed", pa.int64()),
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
        ("published_best", pa.float64()),
        ("published_last", pa.float64()),
        ("published_mean_last_5", pa.float64()),
    ]
)
"""table.parquet, a row per run that finished, failed or diverged (`status`; `reason` says why): the headline metric, in
percent where it is a share, test_loss after the last round, no figures where it did not finish."""

_IN_WORDS: dict[Metric, str] = {
    "best": "of the best evaluated round",
    "last": "of the last round",
    "mean_last_5": f"mean of the last {TAIL} evaluated rounds",
}


class GridTable:
    """The table of a grid and of the runs it has so far.

    Args:
        grid: Its rows, columns and metrics.
        runs: Those that finished or failed, in the grid's order.
        changes: What the command line made other than the grid says.
    """

    def __init__(self, grid: Grid, runs: Sequence[CellRun], changes: Sequence[str] = ()) -> None:
        self._grid, self._runs, self._changes = grid, runs, changes
        self._finished = [run for run in runs if isinstance(run, FinishedRun)]
        self._failed = [run for run in runs if isinstance(run, FailedRun)]

    def write(self, folder: Path) -> None:
        """Writes table.md, for people, and table.parquet, with the columns of `RUNS`."""
        with atomic_write(folder / "table.md") as path:
            path.write_text(self.markdown(), encoding="utf-8")
        rows = [
            {"status": "finished"}
            | {name: value for name, value in vars(run).items() if name in RUNS.names}
            | _metric_name(run)
            | {f"published_{metric}": self._published(metric, run.row, run.column) for metric in _IN_WORDS}
            for run in self._runs
        ]
        with atomic_write(folder / "table.parquet") as path:
            pq.write_table(pa.Table.from_pylist(rows, schema=RUNS), path)

    def markdown(self) -> str:
        """Returns a table for every metric, and one of all runs."""
        return self._page().markdown()

    def show(self, console: Console) -> None:
        """Prints a table for every metric, and one of the runs that failed."""
        self._page(all_runs=False).show(console)

    def cell(self, metric: Metric, row: str, column: str) -> str:
        """Returns the text of a cell.

        `45.20 ± 0.31 (46.10)` is the mean and the sample standard deviation over the seeds, and what is published.
        Seeds without a figure are counted: `45.20, 1 of 3 seeds, 1 diverged`. A cell without any is `failed`,
        `diverged` or `not run`.
        """
        seeds = len(self._grid.seeds)
        values = [getattr(run, metric) for run in self._finished if (run.row, run.column) == (row, column)]
        failed = Counter(run.status for run in self._failed if (run.row, run.column) == (row, column))
        if values:
            parts = [f"{statistics.fmean(values):.2f}"]
            parts[0] += f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            parts += [f"{len(values)} of {seeds} seeds"] if len(values) < seeds else []
            parts += [f"{count} {status}" for status, count in failed.items()]
        elif len(failed) == 1:
            ((status, count),) = failed.items()
            parts = [status, *([f"{count} of {seeds} seeds"] if count < seeds else [])]
        else:
            parts = [f"{count} {status}" for status, count in failed.items()] or ["not run"]
        published = self._published(metric, row, column)
        return ", ".join(parts) + ("" if published is None else f" ({published:.2f})")

    def _page(self, all_runs: bool = True) -> Page:
        tables = [
            Table(
                self._caption(metric),
                ["", *self._grid.columns],
                [[row, *(self.cell(metric, row, column) for column in self._grid.columns)] for row in self._grid.rows],
            )
            for metric in self._grid.metrics
        ]
        return Page(self._grid.title or self._grid.name, tables, list(self._remarks()), list(self._lists(all_runs)))

    def _lists(self, all_runs: bool) -> Iterator[Table]:
        if self._finished and all_runs:
            header = ["", "", "seed", "best", "in round", f"mean of the last {TAIL}", "last", "rounds", "time"]
            yield Table("Runs", header, [_figures(run) for run in self._finished])
        if self._failed:
            rows = [[run.row, run.column, f"{run.seed}", run.status, run.reason] for run in self._failed]
            yield Table("Runs that failed", ["", "", "seed", "", "why"], rows)

    def _published(self, metric: Metric, row: str, column: str) -> float | None:
        """None beside figures of generated data too: they are not of what was published."""
        if any(run.data_source == "generated" for run in self._finished if (run.row, run.column) == (row, column)):
            return None
        return self._grid.published.get(metric, {}).get(row, {}).get(column)

    def _caption(self, metric: Metric) -> str:
        seeds = self._grid.seeds
        over = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean ± standard deviation over {len(seeds)} seeds"
        pairs = [(row, column) for row in self._grid.rows for column in self._grid.columns]
        beside = any(self._published(metric, *pair) is not None for pair in pairs)
        published = "; published figures in brackets" if beside else ""
        measured = dict.fromkeys(
            f"{run.headline.reported_words}{' in percent' if run.headline.is_share else ''}"
            f"{'' if run.headline.on == 'test' else f' (rounds ranked on {run.headline.on} samples)'}"
            for run in self._finished
        ) or ["headline metric"]
        what = ", ".join(measured)
        return f"{what[0].upper()}{what[1:]}, {_IN_WORDS[metric]}; {over}{published}."

    def _remarks(self) -> Iterator[Remark]:
        """What stands under the tables, such as that data was generated."""
        if self._grid.note:
            yield Remark(self._grid.note)
        if self._changes:
            yield Remark(f"Not the grid as shipped: {', '.join(self._changes)}.", warns=True)
        for data, source, described in dict.fromkeys(
            (run.data, run.data_source, run.data_description) for run in self._finished
        ):
            generated = source == "generated"
            what = f"GENERATED DATA, no real data set: {data}" if generated else f"Data: {data}, from {source}"
            yield Remark(f"{what}. {described}.", warns=generated)


def _metric_name(run: CellRun) -> dict[str, str]:
    return {"metric": run.headline.reported} if isinstance(run, FinishedRun) else {}


def _figures(run: FinishedRun) -> list[str]:
    figures = [f"{run.best:.2f}", f"{run.best_round}", f"{run.mean_last_5:.2f}", f"{run.last:.2f}"]
    return [run.row, run.column, f"{run.seed}", *figures, f"{run.rounds}", duration(run.seconds)]
