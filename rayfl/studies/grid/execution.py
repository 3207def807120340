"""`rayfl.grid`: runs the remaining cells of a grid, and makes its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from rayfl import __version__
from rayfl.config.loader import Overrides, override_pairs
from rayfl.config.scenario import CHANGES_NO_RESULT
from rayfl.config.scenario_files import find, is_shipped
from rayfl.console import LABEL, print_line, print_wrapped
from rayfl.data.files import data_folder
from rayfl.errors import ScenarioError
from rayfl.interruption import time_limit
from rayfl.notebook import console_of, ending_block, is_shown, shown_as
from rayfl.remote_folder import local
from rayfl.runs.archive import RunArchive
from rayfl.runs.folder import check_writable
from rayfl.runs.options import OUT, RunOptions
from rayfl.steps import step
from rayfl.studies.grid.cell_runs import Outcome, alone_in, could_go_on, has_begun, planned, run_cells
from rayfl.studies.grid.cells import Cell, cells_of, check_data_unchanged, check_same_data
from rayfl.studies.grid.progress import GridProgress
from rayfl.studies.grid.results import CellRun, FailedRun, FinishedRun
from rayfl.studies.grid.schema import Grid, load_grid
from rayfl.studies.grid.table import GridTable
from rayfl.wording import counted, duration

if TYPE_CHECKING:
    from rayfl.studies.grid.analyses import Analysed

    Analyse = Callable[[Collection[Cell]], Iterable[Analysed]]

AT_URI = (
    "and the runs of a grid share a folder, which is locked, and whose tables are read repeatedly: use a folder that "
    "every node can access"
)


@dataclass(frozen=True)
class GridResult:
    """The result of a grid; a notebook shows its tables.

    Attributes:
        grid: The grid.
        directory: The folder with its tables and runs.
        failed: The cells that failed in this call, each with the reason in one line.
        failed_analyses: The reason for each analysis that failed in this call, by its label.
        shown_in: As for `rayfl.Result`.

    Example:
        >>> import rayfl
        >>> tables = {
        ...     "name": "one_cell",
        ...     "scenario": "femnist_fedavg",
        ...     "rows": {"FedAvg": {}},
        ...     "columns": {"4 writers": {"data": {"source": "generated", "clients": 4}}},
        ... }
        >>> short = {"phases.federated.rounds": 1}
        >>> result = rayfl.grid(tables, overrides=short, backend="inline", quiet=True)
        >>> result
        <GridResult one_cell: 1 runs, in ...>
        >>> result.table["row"].to_pylist(), list(result.failed)
        (['FedAvg'], [])
    """

    grid: Grid
    directory: Path
    failed: Sequence[Outcome]
    _table: GridTable
    failed_analyses: Mapping[str, str] = field(default_factory=dict)
    shown_in: int | None = None

    @property
    def table(self) -> pa.Table:
        """One row per run, with the columns of `rayfl.studies.grid.table.RUNS` and the figures of the grid."""
        return pq.read_table(self.directory / "table.parquet")

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<GridResult {self.grid.name}: {len(self.table)} runs{failed}, in {self.directory}>"

    def _repr_html_(self) -> str:
        return "" if is_shown(self) else self._table.page(all_runs=False).html()


def grid(
    grid: str | Path | Mapping[str, Any],
    *,
    overrides: Overrides = (),
    quick: bool = False,
    only: str | Sequence[str] = (),
    seeds: int | Collection[int] = (),
    tasks: int | Collection[int] = (),
    backend: Literal["ray", "inline"] = "ray",
    address: str | None = None,
    out: str | Path = OUT,
    data_dir: str | Path | None = None,
    table_only: bool = False,
    minutes: float | None = None,
    console: Console | None = None,
    quiet: bool = False,
) -> GridResult:
    """Runs the unfinished cells of a grid side by side, writes its tables, and then carries out its analyses.

    Call it again, also after an interruption, to run the remaining cells; interrupted cells continue from their last
    checkpoints. A cell that fails does not stop the others. An analysis is left out if one of its runs has not
    finished. The grids that come with rayfl take hours in full, so they do not run on generated data that stands in for
    missing files, unless `quick` or `data.source` says so.

    Args:
        grid: A name, the path of a TOML file, or its tables, such as
            `{"scenario": "femnist_fedavg", "rows": {...}, "columns": {...}}`; tables may have a `name` for the folder.
        overrides: Overrides of all cells, as for `rayfl.run`; those of rows and columns take precedence.
        quick: Applies the [quick] tables of the scenario and of the grid.
        only: Cells to run, as `"row/column"`, where `*` matches any; by default all.
        seeds: Seeds to run; by default all.
        tasks: Tasks to run; by default all.
        backend: `ray`, or `inline`: one cell after another in this process.
        address: As for `rayfl.run`.
        out: The grid's folder is created in this one.
        data_dir: As for `rayfl.run`.
        table_only: Runs nothing; makes the tables of the finished cells, and draws complete analyses again.
        minutes: Interrupts the grid after so many minutes, as SIGTERM would. Only in the main thread.
        console: Where progress and tables are printed, as for `rayfl.run`.
        quiet: Prints nothing.

    Raises:
        ScenarioError: A cell is wrong, or was finished with another scenario; raised before the first run.
        DataError: The data of a cell is missing or wrong; raised before the first run.
        ResourceError: No cluster answers, or another process is running this grid.

    Example:
        Two algorithms, one column, in this process; `rayfl.grid("cyclicfl_table_2")` runs a paper's table on Ray:

        >>> import rayfl
        >>> tables = {
        ...     "name": "two_algorithms",
        ...     "scenario": "femnist_fedavg",
        ...     "rows": {"FedAvg": {}, "FedProx": {"phases": {"federated": {"algorithm": "fedprox"}}}},
        ...     "columns": {"4 writers": {"data": {"source": "generated", "clients": 4}}},
        ... }
        >>> short = {"phases.federated.rounds": 1}
        >>> result = rayfl.grid(tables, overrides=short, backend="inline", quiet=True)
        >>> result.table["row"].to_pylist()
        ['FedAvg', 'FedProx']
    """
    options = RunOptions(backend=backend, address=address, out=out, data_dir=data_dir, minutes=minutes)
    if table_only and (only or seeds or tasks or minutes):
        raise ScenarioError(
            "table_only: makes the table of all finished cells; leave out only, seeds, tasks and minutes"
        )
    options = replace(options, data_dir=data_folder(data_dir).absolute(), minutes=None)  # the limit is the grid's
    loaded, pairs = load_grid(grid), override_pairs(overrides)
    only = [only] if isinstance(only, str) else only
    seeds, tasks = ([one] if isinstance(one, int) else one for one in (seeds, tasks))
    in_full = not quick and not isinstance(grid, Mapping) and is_shipped(find(grid, kind="grid"))
    # absolute paths, since a connection to Ray may change the working directory
    place = local(out, "out", AT_URI)
    cells = cells_of(loaded, place, pairs, quick)
    folder = place / loaded.name
    check_writable(folder)
    chosen = [] if table_only else _chosen(loaded, cells, only, seeds, tasks)
    changes = [*(["--quick"] if quick else []), *_changes(pairs)]
    console = console_of(console, quiet)
    analyse: Analyse | None = None
    if loaded.analyses:
        from rayfl.studies.grid.analyses import analyses_of, carry_out, checked  # loads PyTorch

        analyses = analyses_of(loaded, cells, quick)
        if not table_only:
            analyses = checked(analyses, loaded.name, console, changed=bool(pairs))
        analyse = partial(carry_out, analyses, options=options, folder=folder, console=console, draw_only=table_only)
    with time_limit(minutes), ending_block(console), nullcontext() if table_only else alone_in(folder):
        result = _run_left(loaded, cells, chosen, analyse, changes, folder, options, console, in_full)
    return shown_as(console, result)


def _run_left(
    grid: Grid,
    cells: Sequence[Cell],
    chosen: Sequence[Cell],
    analyse: Analyse | None,
    changes: Sequence[str],
    folder: Path,
    options: RunOptions,
    console: Console,
    real_data: bool,
) -> GridResult:
    finished = {cell: FinishedRun.read(cell.place, cell.folder, grid.figures) for cell in cells if cell.finished()}
    runs: dict[Cell, CellRun] = {}
    for cell in cells:
        if run := finished.get(cell) or (FailedRun.read(cell.place, cell.folder) if has_begun(cell) else None):
            runs[cell] = run
    check_same_data(finished)
    interrupted = [has_begun(cell) for cell in chosen if cell not in finished and could_go_on(cell)]
    _announce(console, grid, cells, len(finished), interrupted, folder)
    if others := {RunArchive(cell.folder).version for cell in finished} - {__version__}:
        warning = (
            f"warning: finished runs used rayfl {', '.join(sorted(others))}, and this is {__version__}, "
            "whose results may differ; choose another folder with --out to run all cells with this version"
        )
        print_line(console, warning, style="yellow")
    failed: list[Outcome] = []
    remaining = planned([cell for cell in chosen if cell not in finished], finished)
    prepared: Prepared | None = None
    if remaining:
        from rayfl.runs.preparation import Prepared
        from rayfl.studies.grid.cell_checks import check_cells, check_no_stand_ins

        assert isinstance(options.data_dir, Path)
        in_order = [cell for cell in cells if cell in remaining]
        if real_data:
            check_no_stand_ins(in_order, options.data_dir)
        prepared = Prepared(options.data_dir)
        with step(console, "checking", "data and networks of all cells"):
            check_cells(in_order, prepared, grid.figures)
        check_data_unchanged(finished, remaining, prepared)
        if options.backend == "ray":  # other processes run the cells
            prepared = None
    with GridProgress(len(remaining), sum(remaining.values()), console) as progress:
        _write_table(grid, cells, runs, changes, folder)
        for event in run_cells(list(remaining), options, folder, prepared) if remaining else ():
            if isinstance(event, int):
                progress.running(event)
                continue
            cell, work = event.cell, remaining[event.cell]
            if event.error is not None:
                failed.append(event)
                failure = FailedRun.read(cell.place, cell.folder)
                progress.failed(str(cell), work, event.error, failure is not None and failure.status == "diverged")
                if failure is not None:
                    runs[cell] = failure
            else:
                cell.finished()  # raises if the user's code has changed meanwhile
                runs[cell] = finished[cell] = run = FinishedRun.read(cell.place, cell.folder, grid.figures)
                best = run.headline.text(run.best / (100 if run.headline.is_share else 1))
                progress.done(str(cell), work, f"best {best}, {duration(run.seconds)}")
                check_same_data(finished)
            _write_table(grid, cells, runs, changes, folder)
    table = _write_table(grid, cells, runs, changes, folder)
    table.show(console)
    if grid.figures:
        from rayfl.studies.grid.pictures import draw

        draw(grid, table, runs, folder, console)
    analysed = list(analyse(finished)) if analyse else []
    if pictures := [one.picture for one in analysed if one.picture]:
        table = _write_table(grid, cells, runs, changes, folder, pictures)
    print_line(console, "table and runs: ", (str(folder), "bold"))
    failures = {one.label: one.error for one in analysed if one.error is not None}
    return GridResult(grid, folder, failed, table, failures)


def _chosen(
    grid: Grid, cells: Sequence[Cell], only: Sequence[str], seeds: Collection[int], tasks: Collection[int]
) -> list[Cell]:
    number = grid.tasks or 0
    if unknown := set(seeds) - set(grid.seeds):
        raise ScenarioError(f"this grid has no seed {min(unknown)}; its seeds are {list(grid.seeds)}")
    if tasks and not number:
        raise ScenarioError("this grid has no tasks; leave out the choice of tasks")
    if unknown := set(tasks) - set(range(number)):
        raise ScenarioError(f"this grid has no task {min(unknown)}; its tasks are 0 to {number - 1}")
    try:
        labels = grid.choose(only or ("*/*",), "only")
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    return [
        cell
        for cell in cells
        if (cell.row, cell.column) in labels
        and (not seeds or cell.place.seed in seeds)
        and (not tasks or cell.place.task in tasks)
    ]


def _changes(overrides: Sequence[tuple[str, Any]]) -> list[str]:
    """The overrides that can change results, as text."""
    return [f"{key}={value}" for key, value in overrides if re.split("[.]", key)[0].strip() not in CHANGES_NO_RESULT]


def _write_table(
    grid: Grid,
    cells: Sequence[Cell],
    runs: Mapping[Cell, CellRun],
    changes: Sequence[str],
    folder: Path,
    pictures: Sequence[str] = (),
) -> GridTable:
    """Writes the table. Called after every run, so that an interrupted grid has one too."""
    table = GridTable(grid, [runs[cell] for cell in cells if cell in runs], changes, pictures)
    table.write(folder)
    return table


def _announce(
    console: Console, grid: Grid, cells: Sequence[Cell], finished: int, interrupted: Sequence[bool], folder: Path
) -> None:
    """Prints the size of the grid; `interrupted` says of each run with a checkpoint whether it has these settings."""
    skipped = len(grid.choose(grid.skip, "skip"))
    each = counted(len(grid.seeds), "seed")
    each = each if grid.tasks is None else f"{counted(grid.tasks, 'task')} and {each}"
    going_on, aside = interrupted.count(True), interrupted.count(False)
    begun = f", {going_on} to resume from a checkpoint" if going_on else ""
    begun += f", {aside} of other settings to be moved aside" if aside else ""
    size = f"{counted(len(grid.rows), 'row')} × {counted(len(grid.columns), 'column')}"
    lines = [
        f"{grid.heading} (grid {grid.name})",
        f"cells    {size}{f', {skipped} skipped' if skipped else ''}",
        f"runs     {len(cells)}, with {each} per cell; {finished} finished already{begun}",
        f"records  {folder}",
    ]
    for number, line in enumerate(lines):
        print_wrapped(console, line, "" if number else "bold", indent=LABEL)
