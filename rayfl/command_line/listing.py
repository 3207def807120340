"""`rayfl list`: the scenarios and grids that can be run, by paper, with their data and cost."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.command_line.catalogue import Cost, GridEntry, ScenarioEntry, grid_entries, scenario_entries
from rayfl.command_line.ending import exit_status
from rayfl.command_line.options import command_parser

PIPE_WIDTH = 1000
"""Characters in a line of a pipe: every scenario and grid is one line there, for `grep`."""

EXAMPLES = """\
examples:
  {prog}
  {prog} femnist                # those whose name, title, paper or data contains it
  {prog} --grids coprefl
  {prog} --json

data: `found` in the data folder; a generated `stand-in`, since its files are not there; `missing`, and needed;
`generated` anyway; or `own` files or code, which are only looked for when the scenario runs
cost: rounds and client updates, of the scenario and with --quick
"""

WIDE = 130
"""Columns of a terminal from which on every scenario is one row."""

STYLES = {"found": "green", "stand-in": "yellow", "missing": "red"}


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns."""
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: _carry_out(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "List the scenarios and grids that can be run, by paper.", EXAMPLES)
    parser.add_argument("text", nargs="?", default="", help="list only those that contain it (default: all)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--scenarios", action="store_true", help="list no grids")
    kind.add_argument("--grids", action="store_true", help="list no scenarios")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


def _carry_out(options: argparse.Namespace) -> int:
    scenarios = [] if options.grids else scenario_entries(options.text)
    grids = [] if options.scenarios else grid_entries(options.text)
    if options.json:
        print(json.dumps({"scenarios": [*map(asdict, scenarios)], "grids": [*map(asdict, grids)]}, indent=1))
        return 0
    if not (scenarios or grids):
        print(f"nothing contains '{options.text}'; `rayfl list` lists all", file=sys.stderr)
        return 1
    if scenarios:
        print_scenarios(scenarios)
    if grids:
        print_grids(grids)
    return 0


def print_scenarios(entries: Sequence[ScenarioEntry]) -> None:
    """Prints scenarios by paper, with their data and cost."""
    console = _console()
    for paper, group in groupby(entries, attrgetter("paper")):
        _print_heading(console, paper)
        if console.width < WIDE:
            table = _table("scenario", "title, data, cost")
            for entry in group:
                title, data, cost, quick = _columns(entry)
                facts = Text.assemble(data, "; ", cost, "; --quick: ", quick)
                table.add_row(Text(entry.name), Text("\n").join([title, facts]))
        else:
            table = _table("scenario", "title", "data", "cost", "--quick")
            for entry in group:
                table.add_row(Text(entry.name), *_columns(entry))
        console.print(table)


def print_grids(entries: Sequence[GridEntry]) -> None:
    """Prints grids by paper, with the number of their runs."""
    console = _console()
    for paper, group in groupby(entries, attrgetter("paper")):
        _print_heading(console, paper)
        table = _table("grid", "title", "runs")
        for entry in group:
            table.add_row(Text(entry.name), Text(entry.title), f"{entry.runs}")
        console.print(table)


def _columns(entry: ScenarioEntry) -> list[Text]:
    if entry.error:
        return [Text(f"{entry.title} (not valid: {entry.error})", style="red"), Text("–"), Text("–"), Text("–")]
    data = Text.assemble(f"{entry.data} ", (entry.availability, STYLES.get(entry.availability, "")))
    quick = Text("–") if entry.quick is None else _cost(entry.quick)
    return [Text(entry.title), data, Text("–") if entry.cost is None else _cost(entry.cost), quick]


def _cost(cost: Cost) -> Text:
    updates = (
        "updates not known"
        if cost.client_updates is None
        else f"{cost.client_updates:,} update{'s' * (cost.client_updates != 1)}"
    )
    return Text(f"{cost.rounds:,} round{'s' * (cost.rounds != 1)}, {updates}")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        # what a command takes is never folded
        table.add_column(name, no_wrap=name in ("scenario", "grid"))
    return table


def _print_heading(console: Console, paper: str) -> None:
    console.print(Text(f"\n{paper}", style="bold"))


def _console() -> Console:
    # a pipe has no width of its own
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
