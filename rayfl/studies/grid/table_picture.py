"""The tables of a page as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rayfl.console import TextTable
from rayfl.durable import atomic_write
from rayfl.runs.pictures import DRAWING
from rayfl.studies.tables import TablePage

INK, PALE, HIGHLIGHT = "#222222", "#555555", "#c00000"
CHARACTER, SMALL_CHARACTER, LINE, MARGIN = 0.088, 0.068, 0.27, 0.3
"""Inches: width of a character in tables and in texts, height of a line, width of the margin."""


class _Part(NamedTuple):
    """A text; `x` is its left or right edge, in inches from the margin."""

    x: float
    text: str
    align: Literal["left", "right"] = "left"


class _Line(NamedTuple):
    """A line of the picture, with a rule of the given weight above it."""

    parts: Sequence[_Part] = ()
    size: float = 9
    colour: str = PALE
    bold: bool = False
    rule: float = 0
    height: float = LINE


def draw_tables(page: TablePage, path: Path) -> None:
    """Writes the tables of a page below each other, with its notes, as `path` with the suffixes .png and .pdf.

    Args:
        page: The page; its lists are not drawn.
        path: A path without a suffix.
    """
    with DRAWING:
        save(_figure(page), path)


def save(figure: Figure, path: Path) -> None:
    """Writes a picture as PNG and as PDF."""
    for suffix in ("png", "pdf"):
        with atomic_write(path.with_suffix(f".{suffix}")) as temporary:
            figure.savefig(temporary, format=suffix)


def _figure(page: TablePage) -> Figure:
    width = max(6.0, *(float(sum(_widths(table))) for table in page.tables))
    lines = list(_lines(page, width))
    whole, height = width + 2 * MARGIN, sum(line.height for line in lines) + 2 * MARGIN
    figure = Figure(figsize=(whole, height), dpi=150)
    top = height - MARGIN
    for line in lines:
        if line.rule:
            ends, y = [MARGIN / whole, 1 - MARGIN / whole], [top / height] * 2
            figure.add_artist(Line2D(ends, y, color=INK, linewidth=line.rule))
        for part in line.parts:
            figure.text(
                (MARGIN + part.x) / whole,
                (top - line.height / 2) / height,
                part.text,
                fontsize=line.size,
                ha=part.align,
                va="center_baseline",
                color=line.colour,
                fontweight="bold" if line.bold else "normal",
                parse_math=False,
            )
        top -= line.height
    return figure


def _lines(page: TablePage, width: float) -> Iterator[_Line]:
    for text in textwrap.wrap(page.title, int(width / CHARACTER * 0.75)):
        yield _Line([_Part(0, text)], size=13, colour=INK, bold=True)
    for table in page.tables:
        yield _Line(height=LINE / 2)
        for text in textwrap.wrap(table.caption, int(width / SMALL_CHARACTER)):
            yield _Line([_Part(0, text)], height=0.8 * LINE)
        yield _Line(height=0.2 * LINE)
        ends = np.cumsum(_widths(table)) * (width / sum(_widths(table)))
        for number, row in enumerate([table.header, *table.rows]):
            first, *others = row
            parts = [
                _Part(0, first),
                *(_Part(float(x), text, "right") for x, text in zip(ends[1:], others, strict=True)),
            ]
            yield _Line(parts, size=9.5, colour=INK, bold=not number, rule=(1.4, 0.8)[number] if number < 2 else 0)
        yield _Line(rule=1.4, height=LINE / 2)
    for note in page.notes:
        for text in textwrap.wrap(note, int(width / SMALL_CHARACTER)):
            yield _Line([_Part(0, text)], height=0.8 * LINE)
        yield _Line(height=0.3 * LINE)


def _widths(table: TextTable) -> list[float]:
    """Widths of the columns in inches, with room between them."""
    return [CHARACTER * (max(map(len, column)) + 3) for column in zip(table.header, *table.rows, strict=True)]
