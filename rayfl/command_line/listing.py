"""The scenarios and grids that can be run by name, as tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.command_line.ending import exit_status
from rayfl.config.finding import find_grids, find_scenarios
from rayfl.config.loading import scenario_title
from rayfl.grid.schema import load_grid

PIPE_WIDTH = 200


def main(arguments: Sequence[str], prog: str) -> int:
    """The command `rayfl list`; `exit_status` explains what it returns."""
    parser(prog).parse_args(arguments)
    return exit_status(_print_all)


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    return argparse.ArgumentParser(prog=prog, description="List the scenarios and grids that can be run.")


def _print_all() -> int:
    print_scenarios()
    Console().print()
    print_grids()
    return 0


def print_scenarios() -> None:
    """Prints every scenario's name and title.

    Raises:
        ScenarioError: A file cannot be read, or two share a name.
    """
    table = Table("scenario", "title", box=None, pad_edge=False)
    for name, path in sorted(find_scenarios().items()):
        table.add_row(Text(name), Text(scenario_title(path)))
    _print(table)


def print_grids() -> None:
    """Prints every grid's name and title, and the number of its runs.

    Raises:
        ScenarioError: A file cannot be read, is no valid grid, or two share a name.
    """
    table = Table("grid", "title", "runs", box=None, pad_edge=False)
    for name, path in sorted(find_grids().items()):
        grid = load_grid(path)
        table.add_row(Text(name), Text(grid.title), f"{len(grid.places)}")
    _print(table)


def _print(table: Table) -> None:
    # a pipe has no width of its own: there every row is one line, for `grep`
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)
