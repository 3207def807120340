"""The page of a grid: tables with published values, notes, and lists of runs.

As table.md, on a terminal, and as table.parquet, with a row for every run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from rayfl.console import Bold, TextTable
from rayfl.data.sources.stand_in import GENERATED_DATA
from rayfl.engine.plan.headline import unit_of, words_of
from rayfl.files import atomic_write
from rayfl.studies.grid.results import TAIL, CellRun, FailedRun, FinishedRun
from rayfl.studies.grid.schema import Grid, Metric, Published
from rayfl.studies.statistics import Key, Summary, paired_difference, summary
from rayfl.studies.tables import Numbers, TablePage
from rayfl.wording import duration

METRICS = get_args(Metric)
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


_IN_WORDS: dict[Metric, str] = {
    "best": "{}, of the best evaluated round",
    "best_round": "first evaluated round with the best {}",
    "last": "{}, of the last round",
    "mean_last_5": f"{{}}, mean of the last {TAIL} evaluated rounds",
}
_BRACKETS = "; published figures in brackets"
_NUMBERS, _WHOLE = Numbers(), Numbers(decimals=0)


class GridTable:
    """The table of a grid, for the runs so far.

    Args:
        grid: The grid.
        runs: Runs that finished or failed, in the order of the grid.
        changes: Changes that the command line made to the grid.
        pictures: Pictures of its analyses, relative to its folder.
    """

    def __init__(
        self, grid: Grid, runs: Sequence[CellRun], changes: Sequence[str] = (), pictures: Sequence[str] = ()
    ) -> None:
        self._grid, self._runs, self._changes, self._pictures = grid, runs, changes, pictures
        self._finished = [run for run in runs if isinstance(run, FinishedRun)]
        self._failed = [run for run in runs if isinstance(run, FailedRun)]

    def write(self, folder: Path) -> None:
        """Writes table.md, for reading, and table.parquet, with the columns of `RUNS` and the figures."""
        with atomic_write(folder / "table.md") as path:
            path.write_text(self.markdown(), encoding="utf-8")
        with atomic_write(folder / "table.parquet") as path:
            pq.write_table(self._records(), path)

    def markdown(self) -> str:
        """Returns a table for every metric, the tables of figures, and one of all runs."""
        return self.page().markdown()

    def show(self, console: Console) -> None:
        """Prints a table for every metric, the tables of figures, and one of the failed runs."""
        self.page(all_runs=False).show(console, spaced=True)

    def page(self, all_runs: bool = True) -> TablePage:
        """Returns all tables, and lists of the failed runs and, with `all_runs`, of the finished ones."""
        tables = [*map(self._metric_table, self._grid.metrics), *self._figure_tables()]
        return TablePage(tables, list(self._notes()), self._grid.title or self._grid.name, list(self._lists(all_runs)))

    def cell(self, name: str, row: str, column: str) -> str:
        """Returns the entry of a metric or figure.

        `45.20 ± 0.31 (46.10)` is the mean and the sample standard deviation over the seeds, and the published value; in
        a grid with tasks, the deviation is over tasks, each averaged over its seeds. If some runs have no value, the
        entry counts those that do: `45.20, 1 of 3 seeds, 1 diverged`, or `45.20, 7 of 30 runs` with tasks. A cell
        without any is `failed`, `diverged`, `not run`, or `undefined` by the samples.
        """
        values = self._values(name, row, column)
        failed = Counter(run.status for run in self._failed if (run.place.row, run.place.column) == (row, column))
        if stats := summary(values):
            parts = [_numbers(name).spread(stats), *self._counted(len(values))]
            parts += [f"{count} {status}" for status, count in failed.items()]
        elif len(failed) == 1:
            ((status, count),) = failed.items()
            parts = [status, *self._counted(count)]
        else:
            parts = [f"{count} {status}" for status, count in failed.items()] or [self._missing(row, column)]
        return ", ".join(parts) + _in_brackets(self._published(name, row, column), _numbers(name))

    def _difference(self, name: str, row: str, reference: str, column: str) -> str:
        """The figure of a row minus that of the reference, with its interval: `+1.20 [−0.31, +2.71]`.

        If some runs have no counterpart, the entry counts those that do, as `cell` does.
        """
        values, others = self._values(name, row, column), self._values(name, reference, column)
        difference = paired_difference(values, others)
        if difference is None:
            return self._missing(row, column) if self._runs_of(reference, column) else "not run"
        return ", ".join([_NUMBERS.difference(difference), *self._counted(len(values.keys() & others.keys()))])

    def _missing(self, row: str, column: str) -> str:
        return "undefined" if self._runs_of(row, column) else "not run"

    def _counted(self, runs: int) -> list[str]:
        """How many runs of a cell are behind a number, in words; nothing if all are."""
        asked = len(self._grid.seeds) * (self._grid.tasks or 1)
        return [f"{runs} of {asked} {'runs' if self._grid.tasks else 'seeds'}"] if runs < asked else []

    def _values(self, name: str, row: str, column: str) -> dict[Key, float]:
        runs = self._runs_of(row, column)
        if name == "best_round":  # of a metric that is undefined in every round there is none
            runs = [run for run in runs if math.isfinite(run.best)]
        values = {(run.place.task, run.place.seed): run.value(name) for run in runs}
        return {key: value for key, value in values.items() if math.isfinite(value)}

    def _runs_of(self, row: str, column: str) -> list[FinishedRun]:
        return [run for run in self._finished if (run.place.row, run.place.column) == (row, column)]

    def _published(self, name: str, row: str, column: str) -> Published | None:
        """The published value; None in a cell on generated data, unlike the paper, or in a grid of such."""
        own = self._runs_of(row, column)
        if any(run.data_source == "generated" for run in own):
            return None
        if not own and self._finished and all(run.data_source == "generated" for run in self._finished):
            return None
        return self._grid.published.get(name, {}).get(row, {}).get(column)

    def _beside(self, names: Sequence[str], columns: Sequence[str]) -> str:
        """The end of the caption of a table that shows published values."""
        places = ((name, row, column) for name in names for row in self._grid.rows for column in columns)
        return _BRACKETS if any(self._published(*place) is not None for place in places) else ""

    def _metric_table(self, metric: Metric) -> TextTable:
        columns = list(self._grid.columns)
        measured = dict.fromkeys(
            f"{run.headline.reported_words}"
            f"{' in percent' if run.headline.is_share and metric != 'best_round' else ''}"
            f"{'' if run.headline.on == 'test' else f' (rounds ranked on {run.headline.on} samples)'}"
            for run in self._finished
        ) or ["headline metric"]
        what = _IN_WORDS[metric].format(", ".join(measured))
        caption = f"{what[0].upper()}{what[1:]}; {self._repeated()}"
        rows = [[row, *(self.cell(metric, row, column) for column in columns)] for row in self._grid.rows]
        return TextTable(f"{caption}{self._beside([metric], columns)}.", ["", *columns], rows)

    def _figure_tables(self) -> Iterator[TextTable]:
        """A table for every column of the grid, then, with a reference, a table of differences for every column."""
        names, reference = self._grid.figures, self._grid.reference
        if not names:
            return
        header = ["", *map(self._label, names)]
        for column in self._grid.columns:
            rows = [[row, *(self.cell(name, row, column) for name in names)] for row in self._grid.rows]
            caption = f"{column}: last evaluated round; {self._repeated()}{self._beside(names, [column])}."
            yield TextTable(caption, header, rows)
        if reference is None:
            return
        for column in self._grid.columns:
            rows = [
                [row, *(self._difference(name, row, reference, column) for name in names)]
                for row in self._grid.rows
                if row != reference
            ]
            yield TextTable(f"{column}: row minus {reference}; {self._covered()}", header, rows)

    def _label(self, figure: str) -> str:
        """The name of a figure with its unit, `client test accuracy mean, %`."""
        symbols = {unit_of(figure, run.headline).symbol for run in self._finished} - {""}
        return ", ".join([words_of(figure), *sorted(symbols)])

    def _repeated(self) -> str:
        """What is repeated: `mean ± standard deviation over 3 seeds`."""
        seeds, tasks = self._grid.seeds, self._grid.tasks
        one = f"seed {seeds[0]}"
        if tasks is None:
            return one if len(seeds) == 1 else f"mean ± standard deviation over {len(seeds)} seeds"
        if tasks == 1:
            return f"task 0, {one if len(seeds) == 1 else f'mean over {len(seeds)} seeds'}"
        each = one if len(seeds) == 1 else f"each averaged over {len(seeds)} seeds"
        return f"mean ± standard deviation over {tasks} tasks, {each}"

    def _covered(self) -> str:
        """The source of variation that the intervals cover."""
        seeds = self._grid.seeds
        if self._grid.tasks is None:
            return "mean difference between runs with the same seed, and in brackets its 95 % t-interval over seeds."
        each, other = f" with seed {seeds[0]}", "seed"
        if len(seeds) > 1:
            each, other = f", averaged over {len(seeds)} seeds", "seeds"
        return (
            f"mean difference on the same task{each}, and in brackets its 95 % t-interval over tasks, which does not "
            f"cover the choice of the {other}."
        )

    def _notes(self) -> Iterator[str]:
        if self._grid.note:
            yield self._grid.note
        if self._changes:
            yield Bold(f"Not the grid as shipped: {', '.join(self._changes)}.")
        generated = dict.fromkeys(run.data for run in self._finished if run.data_source == "generated")
        if generated:
            yield f"{GENERATED_DATA}: {', '.join(generated)}. Each run's environment.json describes it."
        for data, source, described in dict.fromkeys(
            (run.data, run.data_source, run.data_description)
            for run in self._finished
            if run.data_source != "generated"
        ):
            yield f"Data: {data}, from {source}. {described}."
        if self._pictures:
            yield f"Analyses of these runs: {', '.join(self._pictures)}."

    def _lists(self, all_runs: bool) -> Iterator[TextTable]:
        place = ["", "", "seed", *(["task"] if self._grid.tasks else [])]
        if self._finished and all_runs:
            figures = ["best", "in round", f"mean of the last {TAIL}", "last", *self._grid.figures, "rounds", "time"]
            yield TextTable("Runs", [*place, *figures], [*map(_finished_row, self._finished)], ("seed", "task"))
        if self._failed:
            rows = [[*_place(run), run.status, run.reason] for run in self._failed]
            yield TextTable("Failed runs", [*place, "", "reason"], rows, ("seed", "task"))

    def _records(self) -> pa.Table:
        """A row for every run, with the columns of `RUNS` and of the figures that are not among them."""
        figures = self._grid.figures
        others = [name for name in figures if name not in RUNS.names]
        schema = RUNS
        for name in [*others, *(f"published_{figure}" for figure in figures)]:
            schema = schema.append(pa.field(name, pa.float64()))
        rows = []
        for run in self._runs:
            row: dict[str, Any] = {"status": "finished"} | {
                name: value for name, value in (run.place._asdict() | vars(run)).items() if name in RUNS.names
            }
            if isinstance(run, FinishedRun):
                row |= {"metric": run.headline.reported} | {name: run.figures[name] for name in others}
            for name in (*METRICS, *figures):
                published = self._published(name, run.place.row, run.place.column)
                row[f"published_{name}"] = published[0] if isinstance(published, tuple) else published
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=schema)


def _numbers(name: str) -> Numbers:
    """How the values of a metric or figure are written."""
    return _WHOLE if name in ("best_round", "transfers") else _NUMBERS


def _in_brackets(published: Published | None, numbers: Numbers) -> str:
    if published is None:
        return ""
    mean, deviation = published if isinstance(published, tuple) else (published, None)
    return f" ({numbers.spread(Summary(mean, deviation, 1))})"


def _finished_row(run: FinishedRun) -> list[str]:
    figures = [f"{run.best:.2f}", f"{run.best_round}", f"{run.mean_last_5:.2f}", f"{run.last:.2f}"]
    figures += [f"{value:.2f}" for value in run.figures.values()]
    return [*_place(run), *figures, f"{run.rounds}", duration(run.seconds)]


def _place(run: CellRun) -> list[str]:
    place = run.place
    return [place.row, place.column, f"{place.seed}", *([] if place.task is None else [f"{place.task}"])]
