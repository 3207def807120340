"""Writes the page of a run or a grid."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from rayfl.durable import atomic_write
from rayfl.errors import DataError, ResourceError
from rayfl.figures.page.layout import layout
from rayfl.figures.page.of_grid import grid_page
from rayfl.figures.page.of_run import run_page
from rayfl.figures.page.parts import Page
from rayfl.figures.recorded_grid import is_grid
from rayfl.figures.recorded_run import is_run

REPORT_FILE = "report.html"


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Writes the page of a run, finished or not, or of a grid, and returns its path.

    Args:
        folder: The folder of the run or grid.
        out: The file; None for report.html in the folder.

    Raises:
        DataError: The folder holds neither a run nor a grid.
        ResourceError: Records are damaged, or the file cannot be written.
    """
    if is_run(folder):
        page = run_page(folder)
    elif is_grid(folder):
        page = grid_page(folder)
    else:
        what = "holds neither a run nor a grid" if folder.is_dir() else "does not exist"
        raise DataError(f"'{folder}' {what}; name a folder below runs/")
    path = out or folder / REPORT_FILE
    try:
        with atomic_write(path) as temporary:
            temporary.write_text(html_of(page), encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"out: '{path}' cannot be written ({error.strerror or error})") from error
    return path


def html_of(page: Page) -> str:
    """The page as HTML; every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader("rayfl.figures.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["layout"] = layout
    return environment.get_template("page.html.j2").render(page=page)
