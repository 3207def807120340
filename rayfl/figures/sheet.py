"""A table of texts with its caption, as Markdown, as HTML, and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.report.html_table import html_table


class Entry(NamedTuple):
    """The text of a cell; the best are in bold."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Sheet:
    """Entries in rows and columns; the first column has the labels of the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry]]

    def markdown(self) -> str:
        """The table in Markdown, below its caption."""
        lines = [[Entry(text) for text in self.header], *self.rows]
        texts = [" | ".join(_markdown(entry) for entry in line) for line in lines]
        texts.insert(1, " | ".join(["---", *["---:"] * (len(self.header) - 1)]))
        return f"{self.caption}\n\n" + "\n".join(f"| {text} |" for text in texts) + "\n"

    def html(self) -> str:
        """The table in HTML."""
        return html_table(self.caption, self.header, self.rows)

    def show(self, console: Console) -> None:
        """Prints the table below its caption."""
        shown = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for place, text in enumerate(self.header):
            shown.add_column(Text(text), justify="right" if place else "left", overflow="fold")
        for row in self.rows:
            shown.add_row(*(Text(entry.text, style="bold" if entry.bold else "") for entry in row))
        console.print(Text(self.caption, style="italic"), soft_wrap=True)
        console.print(shown)


def _markdown(entry: Entry) -> str:
    text = entry.text
    for character in "\\|*`<":
        text = text.replace(character, f"\\{character}")
    return f"**{text}**" if entry.bold else text
