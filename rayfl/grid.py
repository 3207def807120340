"""python -m rayfl.grid: list grids, run their cells, and show the tables that they make."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.cells import LOG, NO_MATTER, Cell, Outcome, alone_in, cells_of, run_cells, visits
from rayfl.config.finding import find_grids
from rayfl.config.grid import Grid, load_grid
from rayfl.errors import DataError, RayflError, ScenarioError
from rayfl.report.duration import duration
from rayfl.report.grid_progress import GridProgress
from rayfl.report.grid_table import CellRun, GridTable

EXAMPLES = """\
examples:
  python -m rayfl.grid --list
  python -m rayfl.grid cyclicfl_table_2                        # again to go on: finished cells are skipped
  python -m rayfl.grid cyclicfl_table_2 --only 'FedAvg/*' --seed 0
  python -m rayfl.grid cyclicfl_table_2 --quick data.source=generated --out quick_runs
  python -m rayfl.grid cyclicfl_table_2 --table-only
  ray job submit --working-dir . -- python -m rayfl.grid cyclicfl_table_2 --out /shared/runs
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0; 1 with a message where something failed; 2 for wrong options; 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.grid",
        description="Run every cell of a grid, side by side on Ray, and make its table.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("grid", nargs="?", help="a grid's name, or a path to a .toml file")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="replace a value of every scenario")
    parser.add_argument("--list", action="store_true", help="list the grids that are found, with their titles")
    parser.add_argument("--only", action="append", metavar="ROW/COLUMN", help="run these cells alone; * for any")
    parser.add_argument("--seed", action="append", type=int, metavar="N", help="run this one of its seeds alone")
    parser.add_argument("--table-only", action="store_true", help="run nothing: make the table of what is finished")
    parser.add_argument(
        "--quick", action="store_true", help="apply the scenario's and the grid's [quick]: a first look"
    )
    parser.add_argument("--backend", choices=["ray", "inline"], default="ray", help="inline: one run after another")
    parser.add_argument(
        "--address", help="a Ray cluster's address, or 'auto' (default: RAY_ADDRESS, else one started here)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where the grid's folder goes (default: runs)")
    parser.add_argument("--data-dir", type=Path, help="real data (default: RAYFL_DATA, else ~/.cache/rayfl/data)")
    options = parser.parse_intermixed_args(arguments)
    console = Console()
    try:
        if options.list:
            _print_list(console)
        elif not options.grid:
            parser.error("name a grid, or use --list")
        else:
            return _run(options, console)
    except RayflError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on with the cells that are left", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace, console: Console) -> int:
    from rayfl.report.records import check_writable  # PyTorch is loaded only to run

    grid = load_grid(options.grid)
    # absolute paths, since a connection to Ray may change the working directory
    cells = cells_of(grid, options.out.absolute(), options.overrides, options.quick)
    folder = options.out.absolute() / grid.name
    check_writable(folder)
    with nullcontext() if options.table_only else alone_in(folder):
        return _run_left(options, console, grid, cells, folder)


def _run_left(options: argparse.Namespace, console: Console, grid: Grid, cells: Sequence[Cell], folder: Path) -> int:
    from rayfl.data.folders import data_folder

    runs = {cell: CellRun.read(cell.row, cell.column, cell.seed, cell.folder) for cell in cells if cell.finished()}
    _check_same_data(runs)
    _announce(console, grid, cells, len(runs), folder)
    changes = _changes(options)
    failed: list[Outcome] = []
    left = (
        []
        if options.table_only
        else [cell for cell in _chosen(grid, cells, options.only, options.seed) if cell not in runs]
    )
    data_dir = (options.data_dir or data_folder()).absolute()
    with GridProgress(len(left), sum(map(visits, left)), console) as progress:
        _write_table(grid, cells, runs, changes, folder)
        for event in run_cells(left, options.backend, options.address, data_dir, folder) if left else ():
            if isinstance(event, int):
                progress.running(event)
            elif event.error is not None:
                failed.append(event)
                progress.failed(str(event.cell), visits(event.cell), event.error)
            else:
                cell = event.cell
                runs[cell] = run = CellRun.read(cell.row, cell.column, cell.seed, cell.folder)
                progress.done(str(cell), visits(cell), f"best {run.best:.2f} %, {duration(run.seconds)}")
                _check_same_data(runs)
                _write_table(grid, cells, runs, changes, folder)
    _write_table(grid, cells, runs, changes, folder).show(console)
    console.print(Text.assemble("table and runs: ", (str(folder), "bold")), soft_wrap=True)
    for outcome in failed:
        print(f"error: {outcome.cell}: {outcome.error} (see {outcome.cell.folder / LOG})", file=sys.stderr)
    return 1 if failed else 0


def _chosen(grid: Grid, cells: Sequence[Cell], only: Sequence[str] | None, seeds: Sequence[int] | None) -> list[Cell]:
    if strange := set(seeds or ()) - set(grid.seeds):
        raise ScenarioError(f"--seed: {min(strange)} is not among the seeds of this grid: {list(grid.seeds)}")
    try:
        chosen = grid.choose(only or ("*/*",), "--only")
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    return [cell for cell in cells if (cell.row, cell.column) in chosen and cell.seed in (seeds or grid.seeds)]


def _changes(options: argparse.Namespace) -> list[str]:
    """What of the command line the figures depend on."""
    keys = [re.split("[.=]", text)[0].strip() for text in options.overrides]
    given = [text for text, key in zip(options.overrides, keys, strict=True) if key not in NO_MATTER]
    return ["--quick", *given] if options.quick else given


def _check_same_data(runs: Mapping[Cell, CellRun]) -> None:
    """Raises DataError: two scenarios ask for the same data, and their runs found different ones."""
    first: dict[str, Cell] = {}
    for cell, run in runs.items():
        data = cell.scenario.data
        other = first.setdefault(f"{data.name} {data.source} {data.options}", cell)
        found, before = run.data_found(), runs[other].data_found()
        if found != before:
            raise DataError(
                f"these did not run on the same data: {other} ({before}) and {cell} ({found}); remove the folder of "
                f"one, '{other.folder}' or '{cell.folder}', to run it again with the other's --data-dir, or name "
                "another folder with --out"
            )


def _write_table(
    grid: Grid, cells: Sequence[Cell], runs: Mapping[Cell, CellRun], changes: Sequence[str], folder: Path
) -> GridTable:
    """At once and after every run, so that a grid that is interrupted has one too."""
    table = GridTable(grid, [runs[cell] for cell in cells if cell in runs], changes)
    table.write(folder)
    return table


def _announce(console: Console, grid: Grid, cells: Sequence[Cell], finished: int, folder: Path) -> None:
    skipped = len(grid.choose(grid.skip, "skip"))
    lines = [
        f"{grid.title or grid.name} (grid {grid.name})",
        f"cells    {len(grid.rows)} rows × {len(grid.columns)} columns{f', {skipped} not run' if skipped else ''}",
        f"runs     {len(cells)}, one for each of {len(grid.seeds)} seeds; {finished} are finished already",
        f"records  {folder}",
    ]
    for number, line in enumerate(lines):
        console.print(line, style="" if number else "bold", highlight=False, markup=False, soft_wrap=True)


def _print_list(console: Console) -> None:
    table = Table("grid", "title", "runs", box=None)
    for name, path in sorted(find_grids().items()):
        grid = load_grid(path)
        cells = len(grid.rows) * len(grid.columns) - len(grid.choose(grid.skip, "skip"))
        table.add_row(Text(name), Text(grid.title), f"{cells * len(grid.seeds)}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
