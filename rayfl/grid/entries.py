"""Entries of the tables of a grid: means and deviations, published values, and missing runs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from rayfl.grid.repetitions import by_repetition, paired
from rayfl.grid.results import CellRun, FailedRun, FinishedRun
from rayfl.grid.schema import Grid, Published
from rayfl.report.formatting import unit_of, words_of


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
        if runs:
            values = by_repetition(runs, name)
            parts = [_shown(statistics.fmean(values))]
            parts[0] += f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
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
        found = paired(self.runs_of(row, column), self.runs_of(reference, column), name)
        if found is None:
            return "not run"
        text = _signed(found.mean)
        if found.margin is not None:
            text += f" [{_signed(found.mean - found.margin)}, {_signed(found.mean + found.margin)}]"
        asked = self._grid.tasks or len(self._grid.seeds)
        if found.repetitions < asked:
            text += f", {found.repetitions} of {asked} {'tasks' if self._grid.tasks else 'seeds'}"
        return text

    def runs_of(self, row: str, column: str) -> list[FinishedRun]:
        """Returns the finished runs of a cell."""
        return [run for run in self.finished if (run.row, run.column) == (row, column)]

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
