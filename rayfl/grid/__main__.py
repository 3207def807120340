"""python -m rayfl.grid, also `rayfl grid`: list grids, run their cells, and show the tables that they make."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rayfl import __version__
from rayfl.command_line.ending import exit_status
from rayfl.command_line.listing import print_grids
from rayfl.command_line.options import add_shared_options, command_parser
from rayfl.config.scenario import CHANGES_NO_RESULT
from rayfl.data.folders import data_folder
from rayfl.errors import ScenarioError
from rayfl.fingerprint.recorded import recorded
from rayfl.grid.cells import Cell, cells_of
from rayfl.grid.progress import GridProgress
from rayfl.grid.results import CellRun, FailedRun, FinishedRun
from rayfl.grid.running import LOG, Outcome, alone_in, planned, run_cells
from rayfl.grid.same_data import check_data_unchanged, check_same_data
from rayfl.grid.schema import Grid, load_grid
from rayfl.grid.table import GridTable
from rayfl.report.folder import check_writable
from rayfl.report.formatting import duration, percent

EXAMPLES = """\
examples:
  {prog} --list
  {prog} cyclicfl_table_2                        # again to go on: finished cells are skipped
  {prog} cyclicfl_table_2 --only 'FedAvg/*' --seed 0
  {prog} cyclicfl_table_2 --quick data.source=generated --out quick_runs
  {prog} cyclicfl_table_2 --table-only
  ray job submit --working-dir . -- python -m rayfl.grid cyclicfl_table_2 --out /shared/runs
"""


def main(arguments: Sequence[str] | None = None, prog: str = "python -m rayfl.grid") -> int:
    """The command; `exit_status` explains what it returns. Wrong options exit with 2."""
    parser = command_parser(prog, "Run every cell of a grid, side by side on Ray, and make its table.", EXAMPLES)
    parser.add_argument(
        "--only",
        action="append",
        metavar="ROW/COLUMN",
        help="run these cells only; * stands for any row or column; may be repeated",
    )
    parser.add_argument(
        "--seed", action="append", type=int, metavar="N", help="run this seed only; may be repeated (default: all)"
    )
    parser.add_argument(
        "--task",
        action="append",
        type=int,
        metavar="N",
        help="run this task only, in a grid with tasks; may be repeated (default: all)",
    )
    parser.add_argument("--table-only", action="store_true", help="run nothing: make the table of what is finished")
    add_shared_options(parser, "grid")
    options = parser.parse_intermixed_args(arguments)
    if not (options.list or options.name):
        parser.error("name a grid, or use --list")
    return exit_status(
        lambda: _carry_out(options), "interrupted: the same command goes on with the cells that are left"
    )


def _carry_out(options: argparse.Namespace) -> int:
    if options.list:
        print_grids()
        return 0
    return _run(options, Console())


def _run(options: argparse.Namespace, console: Console) -> int:
    data_dir = data_folder(options.data_dir).absolute()
    grid = load_grid(options.name)
    # absolute paths, since a connection to Ray may change the working directory
    cells = cells_of(grid, options.out.absolute(), options.overrides, options.quick)
    folder = options.out.absolute() / grid.name
    check_writable(folder)
    with nullcontext() if options.table_only else alone_in(folder):
        return _run_left(options, console, grid, cells, folder, data_dir)


def _run_left(
    options: argparse.Namespace, console: Console, grid: Grid, cells: Sequence[Cell], folder: Path, data_dir: Path
) -> int:
    finished = {cell: _read(grid, cell) for cell in cells if cell.finished()}
    runs = {cell: run for cell in cells if (run := finished.get(cell) or _read_failure(cell))}
    check_same_data(finished)
    _announce(console, grid, cells, len(finished), folder)
    if others := {found for cell in finished if (found := recorded(cell.folder).version) not in (None, __version__)}:
        said = (
            f"warning: finished runs are of rayfl {', '.join(sorted(map(str, others)))}, and this is {__version__}, "
            "whose figures may differ; name another folder with --out to run all cells with it"
        )
        console.print(Text(said, style="yellow"), soft_wrap=True)
    changes = _changes(options)
    failed: list[Outcome] = []
    chosen = [] if options.table_only else _chosen(grid, cells, options)
    left = planned([cell for cell in chosen if cell not in finished], finished)
    if left:
        from rayfl.grid.checking import check_cells

        check_cells([cell for cell in cells if cell in left], data_dir)
        check_data_unchanged(finished, left, data_dir)
    with GridProgress(len(left), sum(left.values()), console) as progress:
        _write_table(grid, cells, runs, changes, folder)
        for event in run_cells(list(left), options.backend, options.address, data_dir, folder) if left else ():
            if isinstance(event, int):
                progress.running(event)
                continue
            cell, work = event.cell, left[event.cell]
            if event.error is not None:
                failed.append(event)
                failure = _read_failure(cell)
                progress.failed(str(cell), work, event.error, failure is not None and failure.status == "diverged")
                if failure is not None:
                    runs[cell] = failure
            else:
                cell.finished()  # raises where the user's code was changed meanwhile
                runs[cell] = finished[cell] = run = _read(grid, cell)
                progress.done(str(cell), work, f"best {percent(run.best / 100)}, {duration(run.seconds)}")
                check_same_data(finished)
            _write_table(grid, cells, runs, changes, folder)
    table = _write_table(grid, cells, runs, changes, folder)
    table.show(console)
    if grid.figures:
        from rayfl.grid.drawing import draw

        draw(grid, table, runs, folder, console)
    console.print(Text.assemble("table and runs: ", (str(folder), "bold")), soft_wrap=True)
    for outcome in failed:
        print(f"error: {outcome.cell}: {outcome.error} (see {outcome.cell.folder / LOG})", file=sys.stderr)
    return 1 if failed else 0


def _read(grid: Grid, cell: Cell) -> FinishedRun:
    row, column, seed, task = cell.place
    return FinishedRun.read(row, column, seed, cell.folder, task, grid.figures)


def _read_failure(cell: Cell) -> FailedRun | None:
    row, column, seed, task = cell.place
    return FailedRun.read(row, column, seed, cell.folder, task)


def _chosen(grid: Grid, cells: Sequence[Cell], options: argparse.Namespace) -> list[Cell]:
    number = grid.tasks or 0
    seeds, tasks = set(options.seed or grid.seeds), set(options.task or range(number))
    if strange := seeds - set(grid.seeds):
        raise ScenarioError(f"--seed: {min(strange)} is not among the seeds of this grid: {list(grid.seeds)}")
    if options.task and not number:
        raise ScenarioError("--task: this grid has no tasks; leave it out")
    if strange := tasks - set(range(number)):
        raise ScenarioError(f"--task: {min(strange)} is not among the tasks of this grid: 0 to {number - 1}")
    try:
        chosen = grid.choose(options.only or ("*/*",), "--only")
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    return [
        cell
        for cell in cells
        if (cell.row, cell.column) in chosen
        and cell.place.seed in seeds
        and (cell.place.task is None or cell.place.task in tasks)
    ]


def _changes(options: argparse.Namespace) -> list[str]:
    """Returns what of the command line changes the figures."""
    keys = [re.split("[.=]", text)[0].strip() for text in options.overrides]
    given = [text for text, key in zip(options.overrides, keys, strict=True) if key not in CHANGES_NO_RESULT]
    return ["--quick", *given] if options.quick else given


def _write_table(
    grid: Grid, cells: Sequence[Cell], runs: Mapping[Cell, CellRun], changes: Sequence[str], folder: Path
) -> GridTable:
    """Writes the table, after every run, so that a grid that is interrupted has one too."""
    table = GridTable(grid, [runs[cell] for cell in cells if cell in runs], changes)
    table.write(folder)
    return table


def _announce(console: Console, grid: Grid, cells: Sequence[Cell], finished: int, folder: Path) -> None:
    skipped = len(grid.choose(grid.skip, "skip"))
    each = f"{len(grid.seeds)} seeds" if grid.tasks is None else f"{grid.tasks} tasks and {len(grid.seeds)} seeds"
    lines = [
        f"{grid.title or grid.name} (grid {grid.name})",
        f"cells    {len(grid.rows)} rows × {len(grid.columns)} columns{f', {skipped} not run' if skipped else ''}",
        f"runs     {len(cells)}, one for each of {each}; {finished} are finished already",
        f"records  {folder}",
    ]
    for number, line in enumerate(lines):
        console.print(line, style="" if number else "bold", highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
