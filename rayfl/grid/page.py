"""Tables with their captions and remarks, as Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns; the first column has the labels of the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Remark:
    """A sentence under the tables; `warns` makes it stand out."""

    text: str
    warns: bool = False


@dataclass(frozen=True)
class Page:
    """The page of a grid: tables, remarks below them, and lists of runs at the end."""

    title: str
    tables: Sequence[Table]
    remarks: Sequence[Remark]
    lists: Sequence[Table]

    def markdown(self) -> str:
        """Returns the page as a Markdown document."""
        parts = [f"# {self.title}"]
        for table in self.tables:
            parts += [table.caption, _markdown(table)]
        parts += [f"**{remark.text}**" if remark.warns else remark.text for remark in self.remarks]
        for table in self.lists:
            parts += [f"## {table.caption}", _markdown(table)]
        return "\n\n".join(parts) + "\n"

    def show(self, console: Console) -> None:
        """Prints the page, without its title."""
        for table in [*self.tables, *self.lists]:
            console.print()
            console.print(Text(table.caption, style="italic"), soft_wrap=True)
            console.print(_rich(table))
        for remark in self.remarks:
            console.print(Text(remark.text, style="bold red" if remark.warns else ""), soft_wrap=True)


def _markdown(table: Table) -> str:
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _rich(table: Table) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, header_style="bold")
    for label in table.header:
        shown.add_column(Text(label), justify="right" if label else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown
