"""Writes the page of a run or a grid as one HTML file.

And chooses how each table is laid out: which columns hold prose, and whether the table fits a sheet of paper.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from rayfl.console import TextTable
from rayfl.errors import ResourceError
from rayfl.files import atomic_write
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.style import check_suffix
from rayfl.studies.figures.groups import neither
from rayfl.studies.figures.page.grid_page import grid_page
from rayfl.studies.figures.page.run_page import run_page
from rayfl.studies.figures.page.sections import REPORT_FILE, Page
from rayfl.studies.figures.recorded_grid import is_grid

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


class Written(NamedTuple):
    """A page on the disk.

    Attributes:
        path: The file.
        renewed: Whether a browser will renew it, since its run has not ended.
    """

    path: Path
    renewed: bool


def write_report(folder: Path, out: Path | None = None, follow: bool = False) -> Written:
    """Writes the page of a run, finished or not, or of a grid.

    Args:
        folder: The folder of the run or grid.
        out: The file; None for report.html in the folder.
        follow: Whether the page of a run under way will be written again, so that a browser renews it.

    Raises:
        DataError: The folder holds neither a run nor a grid.
        ScenarioError: The file is no `.html` or `.htm`.
        ResourceError: Records are damaged, or the file cannot be written.
    """
    path = out or folder / REPORT_FILE
    check_suffix(path, (".html", ".htm"))
    if RunArchive(folder).has_begun:
        page = run_page(folder, follow)
    elif is_grid(folder):
        page = grid_page(folder, path.parent)
    else:
        raise neither(folder)
    try:
        with atomic_write(path) as temporary:
            temporary.write_text(html_of(page), encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"out: '{path}' cannot be written ({error.strerror or error})") from error
    return Written(path, page.renewed_s > 0)


def html_of(page: Page) -> str:
    """The page as HTML; every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader("rayfl.studies.figures.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["layout"] = layout
    return environment.get_template("page.html.j2").render(page=page)
