"""`rayfl list --paper`: the tables and figures of a paper, with their grids, data, cost and verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.table import Table
from rich.text import Text

from rayfl.cli.availability import STYLES, Availability, needs
from rayfl.console import table_console
from rayfl.studies.papers import Item, Paper, Verdict, load_paper

WIDE = 170
"""Width of a terminal, in characters, from which every table or figure takes one row of columns."""

VERDICT_STYLES = {"agrees": "green", "half": "yellow", "differs": "red", "unclear": "yellow"}


@dataclass(frozen=True)
class PaperEntry:
    """A table or figure in the list.

    Attributes:
        number: Its number.
        shows: What it shows.
        grids: The grids that make it.
        command: The command that makes it from their runs, or alone.
        data: Availability of the data sets and weights of cells that run, by name.
        skipped_data: The same of data that only cells need which grids list and skip.
        core_hours: Hours of one core for the grids in full, starts included; None without grids.
        here: How much of it was run here.
        verdict: The verdict.
        page: The page with these runs.
    """

    number: str
    shows: str
    grids: tuple[str, ...]
    command: str
    data: Mapping[str, Availability]
    skipped_data: Mapping[str, Availability]
    core_hours: float | None
    here: str
    verdict: Verdict
    page: str


def _entry(paper: Paper, item: Item) -> PaperEntry:
    made = (item.number, item.shows, item.grids, item.command)
    return PaperEntry(*made, *needs(item), paper.hours(item), item.here, item.verdict, paper.page_of(item))


def list_paper(name: str, as_json: bool) -> int:
    """Prints the list of a paper.

    Raises:
        ScenarioError: There is no such list, or it is wrong.
    """
    paper = load_paper(name)
    entries = [_entry(paper, item) for item in paper.items]
    if as_json:
        tables = {"paper": name, "title": paper.title, "note": paper.note, "items": [*map(asdict, entries)]}
        print(json.dumps(tables, indent=1))
        return 0
    console = table_console()
    console.print(Text(f"\n{paper.title}", style="bold"))
    wide = console.width >= WIDE
    headings = ("made by", "data", "core-hours", "run here", "verdict") if wide else ()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", min_width=9)
    for heading in ("shows", *headings):
        table.add_column(heading, justify="right" if heading == "core-hours" else "left")
    for entry in entries:
        here = " ".join([entry.here, *([f"({entry.page})"] if entry.page != paper.page else [])])
        columns = [
            _made_by(entry, "\n" if console.is_terminal else ", "),
            _data(entry),
            _hours(entry),
            Text(here),
            _verdict(entry),
        ]
        table.add_row(entry.number, *([Text(entry.shows), *columns] if wide else [_stacked(entry, here)]))
    console.print(table)
    for line in (paper.note, f"runs and verdicts: {paper.page}"):
        if line:
            console.print(Text(f"\n{line}", style="dim"), soft_wrap=not console.is_terminal)
    return 0


def _stacked(entry: PaperEntry, here: str) -> Text:
    cost = [Text.assemble(_hours(entry), " core-hours")] if entry.grids else []
    needed = Text("; ").join([part for part in (_data(entry), *cost) if part])
    verdict = Text.assemble(_verdict(entry), f": {here}" if here else "")
    return Text("\n").join([part for part in (Text(entry.shows), _made_by(entry), needed, verdict) if part])


def _made_by(entry: PaperEntry, between: str = "\n") -> Text:
    return Text(between).join([Text(line) for line in (*entry.grids, entry.command) if line])


def _data(entry: PaperEntry) -> Text:
    def listed(data: Mapping[str, Availability]) -> Text:
        return Text(", ").join([Text.assemble(f"{name} ", (each, STYLES.get(each, ""))) for name, each in data.items()])

    skipped = Text.assemble("left out: ", listed(entry.skipped_data)) if entry.skipped_data else Text()
    return Text("; ").join([part for part in (listed(entry.data), skipped) if part])


def _hours(entry: PaperEntry) -> Text:
    hours = entry.core_hours
    return Text("" if hours is None else f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}")


def _verdict(entry: PaperEntry) -> Text:
    return Text(entry.verdict, style=VERDICT_STYLES.get(entry.verdict, "dim"))
