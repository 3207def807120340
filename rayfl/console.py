"""What rayfl prints: the consoles of commands and of runs that print to a file, lines, the progress bar, and tables.

A table is also written as Markdown and as HTML.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

LOG_WIDTH = 120
"""Characters of a line in a file."""

PIPE_WIDTH = 1000
"""Characters of a line where there is no terminal: every row of a table is one line there, for `grep`."""


def table_console() -> Console:
    """A console as wide as the terminal; in a pipe, wide enough to wrap nothing."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def print_line(console: Console, *parts: str | Text | tuple[str, str], style: str = "") -> None:
    """Prints parts of a line, each a text or a text with its style. Nothing is markup, and no line is broken."""
    console.print(Text.assemble(*parts, style=style), soft_wrap=True)


def print_warning(console: Console, text: str) -> None:
    """Prints a warning as one line."""
    print_line(console, f"warning: {text}", style="yellow")


LABEL = 9
"""Characters of the labels with which lines at the start of a run or grid begin: `data     `."""

_PIECES = re.compile(r"/*[^\s/]+/*\s*|\s+|/+\s*")
"""What stays together in a line: a word, or a name within a path with its slashes."""


def print_wrapped(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Prints a line as it is; one that is wider than the terminal is continued below, indented.

    Lines break at spaces and after the slashes of paths. In a pipe they never do.
    """
    lines = [""]
    for piece in _PIECES.findall(text) if console.is_terminal else [text]:
        if lines[-1].strip() and cell_len(lines[-1] + piece.rstrip()) > console.width:
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * indent)
        lines[-1] += piece
    print_line(console, "\n".join(lines), style=style)


def log_console(path: Path) -> Console:
    """A console that appends to a file. What cannot be written, as on a full disk, is left out and raises no error."""
    file: Any = _Log(path)
    return Console(file=file, width=LOG_WIDTH, force_jupyter=False)  # in a notebook, rich would ignore `file`


class _Log(io.TextIOBase):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def write(self, text: str, /) -> int:
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(text)
        return len(text)


def redraws(console: Console) -> bool:
    """Whether a line can be drawn again: the console is a terminal that shows what is printed."""
    return console.is_terminal and not (console.is_dumb_terminal or console.quiet)


def bar_on(console: Console, *columns: ProgressColumn) -> Progress | None:
    """A bar as wide as the terminal: description, bar, then `columns`. None where nothing can be drawn again."""
    if not redraws(console):
        return None
    description = TextColumn("{task.description}", markup=False, style="bold")
    return Progress(description, BarColumn(bar_width=None), *columns, console=console, expand=True)


class Bold(str):
    """The text of a cell in bold."""


@dataclass(frozen=True)
class TextTable:
    """Texts in rows and columns.

    Attributes:
        caption: Its caption.
        header: Headings of the columns; columns without one have labels, and are aligned on the left.
        rows: Cells; those of type `Bold` are in bold.
        keys: Headings of further columns that tell rows apart, such as seeds.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: Collection[str] = ()

    def show(self, console: Console) -> None:
        """Prints the caption and the table, in parts where it is wider than the console."""
        print_wrapped(console, self.caption, "italic")
        for part in self.fitted(console.width):
            console.print(part.rich())

    def fitted(self, width: int) -> list[TextTable]:
        """The table in parts of at most so many characters a line, each with all labels; numbers are never broken.

        Headings and labels that are too wide continue below. A column that is too wide alone is left as it is.
        """
        columns = [[heading, *cells] for heading, *cells in zip(self.header, *self.rows, strict=True)]
        if _width(max(map(cell_len, column)) for column in columns) <= width:
            return [self]
        labels = {place for place, heading in enumerate(self.header) if not heading or heading in self.keys}
        if len(labels) == len(columns):
            return [self]
        widths = [
            max(_longest_word(column, width // 2), min(max(map(cell_len, column)), width // 3))
            if place in labels
            else max(map(cell_len, [*_in_two_lines(column[0]), *column[1:]]))
            for place, column in enumerate(columns)
        ]
        parts: list[set[int]] = []
        for place in range(len(columns)):
            if place in labels:
                continue
            if not parts or _width(widths[other] for other in parts[-1] | {place}) > width:
                parts.append(set(labels))
            parts[-1].add(place)

        def folded(place: int, text: str) -> str:
            return type(text)("\n".join(wrap(text, widths[place], break_on_hyphens=False)))

        return [
            TextTable(
                self.caption,
                [folded(place, self.header[place]) for place in sorted(part)],
                [
                    [folded(place, row[place]) if place in labels else row[place] for place in sorted(part)]
                    for row in self.rows
                ],
                self.keys,
            )
            for part in parts
        ]

    def markdown(self) -> str:
        """The table in Markdown, without its caption."""
        alignment = ["---:" if text else "---" for text in self.header]
        lines = [[*map(_markdown_cell, self.header)], alignment, *([*map(_markdown_cell, row)] for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def html(self) -> str:
        """The table in HTML, with numbers aligned on the right whatever the page's style."""
        sides = [_RIGHT if text else _LEFT for text in self.header]
        head = "".join(f"<th{side}>{escape(text)}</th>" for side, text in zip(sides, self.header, strict=True))
        rows = ("".join(map(_html_cell, sides, row)) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><caption>{escape(self.caption)}</caption><tr>{head}</tr>{body}</table>"

    def rich(self) -> Table:
        """The table on a terminal, without its caption."""
        shown = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for text in self.header:
            shown.add_column(Text(text), justify="right" if text else "left", overflow="fold")
        for row in self.rows:
            shown.add_row(*(Text(text, style="bold" if isinstance(text, Bold) else "") for text in row))
        return shown


def _longest_word(cells: Iterable[str], most: int) -> int:
    """Characters of the longest word, which is only broken if it has more than `most`."""
    longest = max((cell_len(word) for cell in cells for word in cell.split()), default=1)
    return longest if longest <= most else 1


def _in_two_lines(heading: str) -> list[str]:
    """A heading in at most two lines, as narrow as its words allow."""
    widths = range(max(map(len, heading.split()), default=1), len(heading) + 1)
    return next((lines for width in widths if len(lines := wrap(heading, width)) <= 2), [heading])


def _width(of_columns: Iterable[int]) -> int:
    """Characters of a line of `TextTable.rich`: three between columns, two at either end."""
    widths = list(of_columns)
    return sum(widths) + 3 * len(widths) + 1


def _markdown_cell(text: str) -> str:
    escaped = text
    for character in "\\|*`<":
        escaped = escaped.replace(character, f"\\{character}")
    return f"**{escaped}**" if isinstance(text, Bold) else escaped


_LEFT = ' style="padding:0 .6em;text-align:left"'
_RIGHT = ' style="padding:0 .6em;text-align:right;white-space:nowrap"'


def _html_cell(side: str, text: str) -> str:
    return f"<td{side}>{f'<b>{escape(text)}</b>' if isinstance(text, Bold) else escape(text)}</td>"
