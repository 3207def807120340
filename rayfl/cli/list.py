"""`rayfl list`: scenarios and grids by paper or topic, with their data and cost."""

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

from rayfl.cli.availability import STYLES
from rayfl.cli.entries import ExpectedCost, GridEntry, ScenarioEntry, grid_entries, scenario_entries
from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import command_parser
from rayfl.cli.papers import list_paper
from rayfl.config.registry import nearest
from rayfl.console import table_console
from rayfl.errors import ScenarioError

EXAMPLES = """\
examples:
  {prog}
  {prog} femnist                # only if the name, title, paper or data contains it
  {prog} --grids coprefl
  {prog} --data cifar10         # only what needs this data, also where it only starts from a model of it
  {prog} --available            # only what runs here now
  {prog} --paper fps            # its tables and figures: grids, data, core-hours, what was run here, verdict
  {prog} --json

data: `found` in the data folder; only a `subset` found; not found, with a generated `stand-in` (grids that come with
rayfl: --quick alone); `missing`, so the scenario does not run; always `generated`; or your `own` files or code, or
weights to download, which are checked when the scenario runs
cost: rounds and client updates, in full and, on a terminal of 100 columns, with --quick; ≈ where the number of clients
in a round is drawn, or devices may be unavailable or late; core-hours are of one core, in full, with all starts
"""

WIDE = 130
"""Width of a terminal, in characters, from which every scenario takes one row."""

STACKED = 100
"""Width from which the cost with --quick is shown too, below the title."""


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns."""
    of_command = parser(prog)
    options = of_command.parse_args(arguments)
    if options.paper is not None and (options.text or options.data or options.available):
        of_command.error("argument --paper: lists one paper whole; leave out the text, --data and --available")
    return exit_status(lambda: _execute(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "List scenarios and grids by paper, with their data and cost.", EXAMPLES)
    parser.add_argument("text", nargs="?", default="", help="list only entries that contain this text (default: all)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--scenarios", action="store_true", help="list only scenarios")
    kind.add_argument("--grids", action="store_true", help="list only grids")
    kind.add_argument("--paper", metavar="NAME", help="list the tables and figures of a paper")
    parser.add_argument("--data", metavar="NAME", help="list only what needs this data set, by the name in scenarios")
    parser.add_argument("--available", action="store_true", help="list only what runs here now: no data is missing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _execute(options: argparse.Namespace) -> int:
    if options.paper is not None:
        return list_paper(options.paper, options.json)
    filtered = options.data is not None or options.available
    found: list[ScenarioEntry | GridEntry] = [
        *([] if options.grids else scenario_entries(options.text)),
        *([] if options.scenarios else grid_entries(options.text, with_needs=filtered or options.json)),
    ]
    if options.data is not None:
        known = {name for entry in found for name in entry.needs}
        if options.data not in known:
            raise ScenarioError(f"--data: nothing here needs data '{options.data}'; {nearest(options.data, known)}")
        found = [entry for entry in found if options.data in entry.needs]
    if options.available:
        found = [entry for entry in found if entry.runs_here]
    scenarios = [entry for entry in found if isinstance(entry, ScenarioEntry)]
    grids = [entry for entry in found if isinstance(entry, GridEntry)]
    if options.json:
        print(json.dumps({"scenarios": [*map(asdict, scenarios)], "grids": [*map(asdict, grids)]}, indent=1))
        return 0
    if not found:
        containing = f" contains '{options.text}'" if options.text else ""
        runs = f"{' and' * bool(containing)} runs here" if options.available else ""
        print(f"no scenario or grid{containing}{runs}; `rayfl list` lists all", file=sys.stderr)
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
                in_brief = Text.assemble("; --quick: ", quick) if console.width >= STACKED else Text()
                facts = Text.assemble(data, "; ", cost, in_brief)
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
    quick = Text("–") if entry.quick is None else _cost_text(entry.quick)
    return [Text(entry.title), data, Text("–") if entry.cost is None else _cost_text(entry.cost), quick]


def _cost_text(cost: ExpectedCost) -> Text:
    updates = (
        "updates unknown"
        if cost.client_updates is None
        else f"{'' if cost.exact else '≈ '}{cost.client_updates:,} update{'s' * (cost.client_updates != 1)}"
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
