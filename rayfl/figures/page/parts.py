"""The parts of a report page; the template lays them out, and escapes every text in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rayfl.report.text_table import TextTable


@dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
        caption: Its caption, which is also its alternative text.
        source: Its data URI.
        width: On a screen, in rem; less where the page is narrower.
    """

    caption: str
    source: str
    width: float


@dataclass(frozen=True)
class Section:
    """A headed part of the page.

    Attributes:
        title: Its heading.
        texts: Paragraphs.
        pictures: Below them.
        tables: Below those.
        points: A list below the tables.
        code: Preformatted text at the end; empty for none.
    """

    title: str
    texts: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[TextTable] = ()
    points: Sequence[str] = ()
    code: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: Its heading.
        status: The state of the run or grid, in one word.
        reason: Details of the state; may be empty.
        data: One line on the data.
        sections: In order.
        version: Of rayfl, which made the page.
    """

    title: str
    status: str
    reason: str
    data: str
    sections: Sequence[Section] = field(default_factory=tuple)
    version: str = ""
