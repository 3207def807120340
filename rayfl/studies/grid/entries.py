"""Entries of the tables of a grid: means and deviations, published values, and missing runs.

And the tables of figures: rows against figures, and differences of the rows to a reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rayfl.console import TextTable
from rayfl.engine.plan.headline import unit_of, words_of
from rayfl.studies.grid.results import CellRun, FailedRun, FinishedRun
from rayfl.studies.grid.schema import Grid, Published
from rayfl.studies.statistics import Key, paired_difference, summary


class Entries:
    """The entries of a grid's tables.

    Args:
        grid: The grid.
        runs: Runs that finished or failed, in the order of the grid.
    """

    def __init__(self, grid: Grid, runs: Sequence[CellRun]) -> None:
        self._grid = grid
        self.finished = [run for run in runs if isinstance(run, FinishedRun)]
        self.failed = [run for run in runs if isinstance(run, FailedRun)]

    def text(self, name: str, row: str, column: str) -> str:
        """Returns an entry of a metric or figure.

        `45.20 ± 0.31 (46.10)` is the mean and the sample standard deviation over the seeds, and the published value; in
        a grid with tasks, the deviation is over tasks, each averaged over its seeds. If some runs have no value, the
        entry counts those that do: `45.20, 1 of 3 seeds, 1 diverged`, or `45.20, 7 of 30 runs` with tasks. A cell
        without any is `failed`, `diverged` or `not run`.
        """
        runs = self.runs_of(row, column)
        failed = Counter(run.status for run in self.failed if (run.row, run.column) == (row, column))
        asked = len(self._grid.seeds) * (self._grid.tasks or 1)
        noun = "runs" if self._grid.tasks else "seeds"
        if found := summary(self._values(name, row, column)):
            parts = [_shown(found.mean)]
            parts[0] += "" if found.deviation is None else f" ± {found.deviation:.2f}"
            parts += [f"{len(runs)} of {asked} {noun}"] if len(runs) < asked else []
            parts += [f"{count} {status}" for status, count in failed.items()]
        elif len(failed) == 1:
            ((status, count),) = failed.items()
            parts = [status, *([f"{count} of {asked} {noun}"] if count < asked else [])]
        else:
            parts = [f"{count} {status}" for status, count in failed.items()] or ["not run"]
        return ", ".join(parts) + _in_brackets(self.published(name, row, column))

    def difference(self, name: str, row: str, reference: str, column: str) -> str:
        """Returns `+1.20 [−0.31, +2.71]`: the figure of a row minus that of the reference, with its interval.

        If some runs have no counterpart, the entry counts the repetitions that do: `+1.20, 1 of 10 tasks`.
        """
        found = paired_difference(self._values(name, row, column), self._values(name, reference, column))
        if found is None:
            return "not run"
        text = _signed(found.mean)
        if (margin := found.margin) is not None:
            text += f" [{_signed(found.mean - margin)}, {_signed(found.mean + margin)}]"
        asked = self._grid.tasks or len(self._grid.seeds)
        if found.repetitions < asked:
            text += f", {found.repetitions} of {asked} {'tasks' if self._grid.tasks else 'seeds'}"
        return text

    def runs_of(self, row: str, column: str) -> list[FinishedRun]:
        """Returns the finished runs of a cell."""
        return [run for run in self.finished if (run.row, run.column) == (row, column)]

    def _values(self, name: str, row: str, column: str) -> dict[Key, float]:
        return {(run.task, run.seed): run.value(name) for run in self.runs_of(row, column)}

    def published(self, name: str, row: str, column: str) -> Published | None:
        """Returns the published value; None in a cell on generated data, unlike the paper, or in a grid of such."""
        own = self.runs_of(row, column)
        if any(run.data_source == "generated" for run in own):
            return None
        if not own and self.finished and all(run.data_source == "generated" for run in self.finished):
            return None
        return self._grid.published.get(name, {}).get(row, {}).get(column)

    def any_published(self, names: Sequence[str], columns: Sequence[str]) -> bool:
        """Returns whether a table shows any published value."""
        return any(
            self.published(name, row, column) is not None
            for name in names
            for row in self._grid.rows
            for column in columns
        )

    def repeated(self) -> str:
        """Returns a text on repetitions: `mean ± standard deviation over 3 seeds`."""
        seeds, tasks = self._grid.seeds, self._grid.tasks
        one = f"seed {seeds[0]}"
        if tasks is None:
            return one if len(seeds) == 1 else f"mean ± standard deviation over {len(seeds)} seeds"
        if tasks == 1:
            return f"task 0, {one if len(seeds) == 1 else f'mean over {len(seeds)} seeds'}"
        each = one if len(seeds) == 1 else f"each averaged over {len(seeds)} seeds"
        return f"mean ± standard deviation over {tasks} tasks, {each}"

    def label(self, figure: str) -> str:
        """Returns the name of a figure with its unit, `client test accuracy mean, %`."""
        symbols = {unit_of(figure, run.headline).symbol for run in self.finished} - {""}
        return ", ".join([words_of(figure), *sorted(symbols)])


def _shown(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _in_brackets(published: Published | None) -> str:
    match published:
        case None:
            return ""
        case (mean, deviation):
            return f" ({mean:.2f} ± {deviation:.2f})"
        case _:
            return f" ({published:.2f})"


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
