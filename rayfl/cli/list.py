"""`rayfl list`: scenarios and grids by paper or topic, with their data and cost.

The folder of a file in `scenarios/` says which paper or topic it belongs to.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.cli.availability import STYLES, Availability, availability
from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import command_parser
from rayfl.cli.papers import list_paper
from rayfl.config.loader import load_scenario, read_scenario
from rayfl.config.phase import AsynchronousPhase
from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find_grids, find_scenarios, is_shipped
from rayfl.console import table_console
from rayfl.engine.plan.cohort import expected_cohort_size
from rayfl.errors import ScenarioError
from rayfl.studies.grid.schema import load_grid
from rayfl.studies.papers import titles

TOPICS: Mapping[str, str] = {
    "privacy": "Differential privacy",
    "asynchronous": "Asynchronous federated learning",
    "starts": "Starting points compared",
}
"""The titles of the folders that belong to no paper. Those of papers are in their `.paper.toml` files."""

OTHERS = "Other scenarios shipped with rayfl"
OWN = "Your own"


def groups() -> Mapping[str, str]:
    """The titles of all folders, papers first, in the order of the list.

    Raises:
        ScenarioError: The file of a paper cannot be read or has no title.
    """
    return {**titles(), **TOPICS}


def paper_of(path: Path, known: Mapping[str, str]) -> str:
    """The title of the group of a scenario or grid, among known titles of folders."""
    return known.get(path.parent.name, OTHERS) if is_shipped(path) else OWN


def in_order(title: str, known: Mapping[str, str]) -> int:
    """The position of a group in lists: your own files come first."""
    return [OWN, *known.values(), OTHERS].index(title)


@dataclass(frozen=True)
class ExpectedCost:
    """The amount of training in a scenario.

    Attributes:
        rounds: Rounds of all phases.
        client_updates: Expected number over all rounds; None if it depends on the number of clients in the data.
    """

    rounds: int
    client_updates: int | None


@dataclass(frozen=True)
class ScenarioEntry:
    """A scenario in the list.

    Attributes:
        name: Its name, for `rayfl run`.
        title: Its title, possibly empty.
        paper: The title of its group.
        data: The name of its data set, or `package.module:object`.
        availability: Whether its data is available.
        cost: Its cost; None if the scenario is not valid.
        quick: Its cost with `--quick`; None without a [quick] table.
        error: The last line of the error; empty if the scenario is valid.
    """

    name: str
    title: str
    paper: str
    data: str = ""
    availability: Availability = "own"
    cost: ExpectedCost | None = None
    quick: ExpectedCost | None = None
    error: str = ""


@dataclass(frozen=True)
class GridEntry:
    """A grid in the list.

    Attributes:
        name: Its name, for `rayfl grid`.
        title: The heading of its table.
        paper: The title of its group.
        scenario: Name of the scenario behind its cells.
        runs: Number of runs.
    """

    name: str
    title: str
    paper: str
    scenario: str
    runs: int


def scenario_entries(containing: str = "") -> list[ScenarioEntry]:
    """The scenarios whose name, title, paper or data contains a text, ignoring case, by paper and name.

    Raises:
        ScenarioError: A file cannot be read, or two share a name.
    """
    known = groups()
    entries = [_scenario_entry(name, path, paper_of(path, known)) for name, path in sorted(find_scenarios().items())]
    chosen = [one for one in entries if _contains(containing, one.name, one.title, one.paper, one.data)]
    return sorted(chosen, key=lambda entry: in_order(entry.paper, known))


def grid_entries(containing: str = "") -> list[GridEntry]:
    """The grids whose name, title, paper or scenario contains a text, ignoring case, by paper and name.

    Raises:
        ScenarioError: A file cannot be read or is not a valid grid, or two share a name.
    """
    known = groups()
    entries = []
    for name, path in sorted(find_grids().items()):
        grid = load_grid(path)
        entries.append(GridEntry(name, grid.title, paper_of(path, known), Path(grid.scenario).stem, len(grid.places)))
    chosen = [one for one in entries if _contains(containing, one.name, one.title, one.paper, one.scenario)]
    return sorted(chosen, key=lambda entry: in_order(entry.paper, known))


def _contains(text: str, *where: str) -> bool:
    return any(text.casefold() in one.casefold() for one in where)


def _scenario_entry(name: str, path: Path, paper: str) -> ScenarioEntry:
    tables = read_scenario(path)  # once: most of the time goes into reading
    title = str(tables.get("title", ""))
    try:
        scenario = load_scenario(tables)
        quick = _cost(load_scenario(tables, quick=True)) if tables.get("quick") else None
        return ScenarioEntry(name, title, paper, scenario.data.name, availability(scenario), _cost(scenario), quick)
    except ScenarioError as error:
        return ScenarioEntry(name, title, paper, error=str(error).splitlines()[-1])


def _cost(scenario: Scenario) -> ExpectedCost:
    clients, updates = scenario.data.clients, 0.0
    for phase in scenario.phases:
        if isinstance(phase, AsynchronousPhase):  # its cohort is those who may start, not those who answer
            updates += phase.rounds * phase.answers_per_step
        elif clients is not None:
            updates += phase.rounds * expected_cohort_size(phase, clients)
        elif isinstance(phase.settings.cohort, int):
            updates += phase.rounds * phase.settings.cohort
        else:
            return ExpectedCost(_rounds(scenario), None)
    return ExpectedCost(_rounds(scenario), round(updates))


def _rounds(scenario: Scenario) -> int:
    return sum(phase.rounds for phase in scenario.phases)


EXAMPLES = """\
examples:
  {prog}
  {prog} femnist                # only if the name, title, paper or data contains it
  {prog} --grids coprefl
  {prog} --paper fps            # its tables and figures: grids, data, core-hours, what was run here, verdict
  {prog} --json

data: `found` in the data folder; only a `subset` found; not found, with a generated `stand-in` (grids that come with
rayfl: --quick alone); `missing`, so the scenario does not run; always `generated`; or your `own` files or code, or
weights to download, which are checked when the scenario runs
cost: rounds and client updates, in full and with --quick; core-hours are of one core, in full, with all starts
"""

WIDE = 130
"""Width of a terminal, in characters, from which every scenario takes one row."""


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns."""
    of_command = parser(prog)
    options = of_command.parse_args(arguments)
    if options.paper is not None and options.text:
        of_command.error("argument --paper: lists one paper whole; leave out the text")
    return exit_status(lambda: _execute(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "List scenarios and grids by paper, with their data and cost.", EXAMPLES)
    parser.add_argument("text", nargs="?", default="", help="list only entries that contain this text (default: all)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--scenarios", action="store_true", help="list only scenarios")
    kind.add_argument("--grids", action="store_true", help="list only grids")
    kind.add_argument("--paper", metavar="NAME", help="list the tables and figures of a paper")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _execute(options: argparse.Namespace) -> int:
    if options.paper is not None:
        return list_paper(options.paper, options.json)
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
    quick = Text("–") if entry.quick is None else _cost_text(entry.quick)
    return [Text(entry.title), data, Text("–") if entry.cost is None else _cost_text(entry.cost), quick]


def _cost_text(cost: ExpectedCost) -> Text:
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
