"""`rayfl list`: scenarios and grids by paper, with their data and cost."""

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
from rayfl.command_line.console import table_console
from rayfl.command_line.ending import exit_status
from rayfl.command_line.options import command_parser

EXAMPLES = """\
examples:
  {prog}
  {prog} femnist                # only if the name, title, paper or data contains it
  {prog} --grids coprefl
  {prog} --json

data: `found` in the data folder; not found, with a generated `stand-in`; `missing`, so the scenario does not run;
always `generated`; or your `own` files or code, which are checked when the scenario runs
cost: rounds and client updates, in full and with --quick
"""

WIDE = 130
"""Width of a terminal, in characters, from which every scenario takes one row."""

STYLES = {"found": "green", "stand-in": "yellow", "missing": "red"}


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns."""
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: _carry_out(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "List scenarios and grids by paper, with their data and cost.", EXAMPLES)
    parser.add_argument("text", nargs="?", default="", help="list only entries that contain this text (default: all)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--scenarios", action="store_true", help="list only scenarios")
    kind.add_argument("--grids", action="store_true", help="list only grids")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _carry_out(options: argparse.Namespace) -> int:
    scenarios = [] if options.grids else scenario_entries(options.text)
    grids = [] if options.scenarios else grid_entries(options.text)
    if options.json:
        print(json.dumps({"scenarios": [*map(asdict, scenarios)], "grids": [*map(asdict, grids)]}, indent=1))
        return 0
    if not (scenarios or grids):
        print(f"no scenario or grid contains '{options.text}'; `rayfl list` lists all", file=sys.stderr)
        return 1
    if scenarios:
        print_scenarios(scenarios)
    if grids:
        print_grids(grids)
    return 0


def print_scenarios(entries: Sequence[ScenarioEntry]) -> None:
    """Prints scenarios by paper, with their data and cost."""
    console = table_console()
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
    console = table_console()
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
        "updates unknown"
        if cost.client_updates is None
        else f"{cost.client_updates:,} update{'s' * (cost.client_updates != 1)}"
    )
    return Text(f"{cost.rounds:,} round{'s' * (cost.rounds != 1)}, {updates}")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        # names that commands take are never folded
        table.add_column(name, no_wrap=name in ("scenario", "grid"))
    return table


def _print_heading(console: Console, paper: str) -> None:
    console.print(Text(f"\n{paper}", style="bold"))
