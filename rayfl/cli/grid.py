"""`rayfl grid`: lists grids, runs their cells and shows their tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import add_list, add_shared_options, check_list, command_parser, refuse, resolve_shared

EXAMPLES = """\
examples:
  {prog} --list
  {prog} cyclicfl_table_2                        # again to continue: finished cells are skipped
  {prog} cyclicfl_table_2 --only 'FedAvg/*' --seed 0
  {prog} cyclicfl_table_2 --quick data.source=generated --out quick_runs
  {prog} cyclicfl_table_2 --table-only
  {prog} cyclicfl_table_2 --minutes 55           # before the limit of a job; the same command continues
  ray job submit --working-dir . -- python -m rayfl grid cyclicfl_table_2 --out /shared/runs
"""


def main(arguments: Sequence[str] | None = None, prog: str = "rayfl grid") -> int:
    """Runs the command; `exit_status` explains its exit status. Wrong options exit with 2."""
    of_command = parser(prog)
    options = of_command.parse_intermixed_args(arguments)
    if not (options.list or options.name):
        of_command.error("name a grid, or use --list")
    check_list(of_command, options, "only", "seed", "task", "table_only", "quick")
    if options.table_only:
        refuse(
            of_command,
            options,
            "with --table-only",
            "only",
            "seed",
            "task",
            "backend",
            "address",
            "data_dir",
            "minutes",
        )
    resolve_shared(of_command, options)
    return exit_status(lambda: _execute(options), "interrupted: run the same command again for the remaining cells")


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(
        prog, "Run all cells of a grid in parallel on Ray, and make its table and analyses.", EXAMPLES
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="ROW/COLUMN",
        help="run only these cells; * matches any row or column; may be repeated",
    )
    parser.add_argument(
        "--seed", action="append", type=int, metavar="N", help="run only this seed; may be repeated (default: all)"
    )
    parser.add_argument(
        "--task",
        action="append",
        type=int,
        metavar="N",
        help="run only this task, in a grid with tasks; may be repeated (default: all)",
    )
    parser.add_argument(
        "--table-only",
        action="store_true",
        help="run nothing; make the table of the finished cells, and draw complete analyses again",
    )
    add_list(parser, "grid")
    add_shared_options(parser, "grid")
    return parser


def _execute(options: argparse.Namespace) -> int:
    if options.list:
        from rayfl.cli.entries import grid_entries
        from rayfl.cli.list import print_grids

        print_grids(grid_entries())
        return 0
    from rich.console import Console

    from rayfl.steps import starting

    console = Console()
    with starting(console, options.name):
        from rayfl.studies.grid.cell_runs import LOG
        from rayfl.studies.grid.execution import grid  # loads PyTorch

    result = grid(
        options.name,
        overrides=options.overrides,
        quick=options.quick,
        only=options.only or (),
        seeds=options.seed or (),
        tasks=options.task or (),
        backend=options.backend,
        address=options.address,
        out=options.out,
        data_dir=options.data_dir,
        table_only=options.table_only,
        minutes=options.minutes,
        console=console,
    )
    for outcome in result.failed:
        print(f"error: {outcome.cell}: {outcome.error} (see {outcome.cell.folder / LOG})", file=sys.stderr)
    for label, error in result.failed_analyses.items():
        print(f"error: analysis {label}: {error}", file=sys.stderr)
    return 1 if result.failed or result.failed_analyses else 0
