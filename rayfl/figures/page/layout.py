"""How a table of a page is laid out: which columns hold prose, and whether the table fits a sheet of paper."""

from __future__ import annotations

from typing import NamedTuple

from rayfl.report.text_table import TextTable

PROSE = 48
"""A column whose longest text has more characters than these is prose, which wraps."""

WRAPPED = 30
"""Characters of a line of prose in a printed table."""

SHEET = 105
"""Characters of a printed table that fit beside each other, the space between columns not counted."""

SHORT = 24
"""Rows of a table that a page break never divides."""


class Layout(NamedTuple):
    """Classes of the template's style sheet.

    Attributes:
        table: Of the table.
        columns: Of the cells of each column.
    """

    table: str
    columns: list[str]


def layout(table: TextTable) -> Layout:
    """Chooses the classes for a table from the lengths of its texts."""
    widths = [max((len(row[place]) for row in table.rows), default=0) for place in range(len(table.header))]
    headings = [max(map(len, text.split()), default=0) for text in table.header]  # they wrap
    printed = [WRAPPED if width > PROSE else max(width, least) for width, least in zip(widths, headings, strict=True)]
    classes = [
        "words" if len(widths) < 3 else "numbers",
        *(["wide"] if sum(printed) > SHEET else []),
        *(["short"] if len(table.rows) <= SHORT else []),
    ]
    return Layout(" ".join(classes), ["prose" if width > PROSE else "" for width in widths])
