"""A table of texts with its caption, as Markdown, as HTML, and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich import box
from rich.table import Table
from rich.text import Text


class Bold(str):
    """The text of a cell in bold."""


@dataclass(frozen=True)
class TextTable:
    """Texts in rows and columns.

    Attributes:
        caption: Its caption.
        header: Headings of the columns; columns without one have labels, and are aligned on the left.
        rows: Cells; those of type `Bold` are in bold.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table in Markdown, without its caption."""
        alignment = ["---:" if text else "---" for text in self.header]
        lines = [[*map(_markdown, self.header)], alignment, *([*map(_markdown, row)] for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def html(self) -> str:
        """The table in HTML."""
        head = "".join(f"<th>{escape(text)}</th>" for text in self.header)
        body = "".join(f"<tr>{''.join(map(_html, row))}</tr>" for row in self.rows)
        return f"<table><caption>{escape(self.caption)}</caption><tr>{head}</tr>{body}</table>"

    def rich(self) -> Table:
        """The table on a terminal, without its caption."""
        shown = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for text in self.header:
            shown.add_column(Text(text), justify="right" if text else "left", overflow="fold")
        for row in self.rows:
            shown.add_row(*(Text(text, style="bold" if isinstance(text, Bold) else "") for text in row))
        return shown


def _markdown(text: str) -> str:
    escaped = text
    for character in "\\|*`<":
        escaped = escaped.replace(character, f"\\{character}")
    return f"**{escaped}**" if isinstance(text, Bold) else escaped


def _html(text: str) -> str:
    return f"<td><b>{escape(text)}</b></td>" if isinstance(text, Bold) else f"<td>{escape(text)}</td>"
