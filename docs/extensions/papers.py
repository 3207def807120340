"""`{paper} fps`: the tables and figures of a paper, from the file beside its grids."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx

from extensions.generated import directive
from rayfl.config.scenario_files import find_grids, find_papers
from rayfl.studies.papers import Item, Paper, data_needed, load_paper

HEADER = (
    "| | shows | made by | data | core-hours | run here | verdict |",
    "|---|---|---|---|---:|---|---|",
)


def as_markdown(words: list[str]) -> str:
    """Returns the table and the note of a paper."""
    (name,) = words
    paper = load_paper(name)
    return "\n".join([*HEADER, *(_row(paper, item) for item in paper.items), "", paper.note])


def _row(paper: Paper, item: Item) -> str:
    made_by = ", ".join(f"`{name}`" for name in (*item.grids, item.command) if name)
    hours = paper.hours(item)
    here = item.here
    if item.page is not None and item.page != paper.page:
        here = f"{here} ([page]({Path(item.page).name}))"
    cells = (
        item.number,
        item.shows,
        made_by,
        ", ".join(_data(item)),
        "" if hours is None else f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}",
        here,
        item.verdict,
    )
    return f"| {' | '.join(cells)} |"


def _data(item: Item) -> list[str]:
    """The names of data sets; those in brackets are only for cells that the grids skip."""
    needed = {(need.scenario.data.name, need.skipped) for need in data_needed(item)}
    run = sorted(name for name, skipped in needed if not skipped)
    return [*run, *(f"({name})" for name in sorted({name for name, skipped in needed if skipped} - set(run)))]


def _files(words: list[str]) -> Iterable[str]:
    return [
        str(find_papers()[words[0]]),
        *(str(path) for path in find_grids().values() if path.parent.name == words[0]),
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{paper}`."""
    app.add_directive("paper", directive(as_markdown, _files))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
