"""The one look of all figures: widths, colours, dashes and markers, and how they are drawn and written.

Colours are told apart by the colour-blind; dashes and markers serve greyscale.
"""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rayfl.errors import ScenarioError
from rayfl.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rayfl.runs.figures.recorded_run import DataNote

Width = Literal["column", "page"]
COLUMN_INCHES, PAGE_INCHES = 3.4, 7.0
"""Widths of a column and of a page of most proceedings."""

COLOURS = ("#0b4f8a", "#d55e00", "#56b4e9", "#000000", "#009e73", "#aa4499", "#e69f00", "#882255")
"""Okabe and Ito's palette with a darker blue, and two of Tol's; the first four differ in lightness too."""

GREY = "#666666"
"""Of small print, and of what belongs to no line."""

BAND_ALPHA, EDGE_ALPHA = 0.12, 0.6
"""Opacities of a band and of the thin lines along its edges, by which overlapping bands are told apart in grey."""

_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.3, 1.2, 1.3)), (0, (8, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">", "h")
MOST_LINES = 3 * len(COLOURS)

DOTS = "none"
"""The dash of values that no line connects, such as scores of clients: each has a dot."""

RASTERISED = 500
"""More dots of a kind are an image in SVG and PDF, whose size then does not grow with them."""

RC: dict[str, Any] = {
    "font.size": 7.5,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7.5,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "none",
    "figure.titlesize": 9.5,
    "figure.titleweight": "bold",
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.35,
    "legend.borderaxespad": 0.2,
    "figure.constrained_layout.w_pad": 0.05,
    "figure.constrained_layout.h_pad": 0.03,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "svg.hashsalt": "rayfl",
}
"""matplotlib's parameters on top of its defaults; `svg.hashsalt` makes the identifiers in an SVG repeatable.

Texts are no formulas: titles and labels are a user's, and a `$` in them is a dollar sign; see `plain_numbers`.
"""

SCREEN = 4 / 3
"""How much larger texts and lines of a figure are that is made for a screen rather than for a column of print."""

FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Formats by suffix, each with the metadata to leave out so that a figure always gives the same bytes."""

_LOCK = threading.RLock()
"""matplotlib draws in one thread at a time, and two runs may end at once."""


@contextmanager
def drawing(scale: float = 1.0) -> Iterator[None]:
    """Gives matplotlib the look of rayfl's figures, to one thread at a time.

    Args:
        scale: Factor of the sizes of texts and lines.
    """
    import matplotlib.style  # slow to load, and tables need the rest of this module alone

    sized = {name: scale * value for name, value in RC.items() if name.endswith(("size", "width"))}
    sized["savefig.dpi"] = RC["savefig.dpi"] / scale**2
    with _LOCK, matplotlib.style.context(["default", RC | sized]):
        yield


def plain_numbers(*axes: Axes) -> None:
    """Labels logarithmic axes with plain numbers, in place of matplotlib's powers, which are formulas."""
    from matplotlib.ticker import LogFormatter

    for axis in (axis for one in axes for axis in (one.xaxis, one.yaxis) if axis.get_scale() != "linear"):
        axis.set_major_formatter("{x:g}")
        if axis.get_scale() == "log":
            axis.set_minor_formatter(LogFormatter())


def check_suffix(path: Path, suffixes: Iterable[str] = FORMATS) -> None:
    """Checks that a file to write is of a known format.

    Raises:
        ScenarioError: It has another suffix, or none.
    """
    if path.suffix.lower() not in suffixes:
        raise ScenarioError(f"out: '{path}' has no supported suffix; use {', '.join(suffixes)}")


def write(figure: Figure, path: Path) -> None:
    """Writes a figure in the format of the path's suffix, within `drawing`; fonts are embedded in a PDF."""
    suffix = path.suffix.lower()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format=suffix[1:], metadata=FORMATS[suffix])


class LineStyle(NamedTuple):
    """The look of one line."""

    colour: str
    dash: Any
    marker: str


def line_style(place: int) -> LineStyle:
    """The look of the line at a place of the legend; no two of `MOST_LINES` are alike."""
    turn, colour = divmod(place, len(COLOURS))
    return LineStyle(COLOURS[colour], _DASHES[(place + turn) % len(_DASHES)], _MARKERS[place % len(_MARKERS)])


def balanced(text: str, most: int) -> list[str]:
    """The text in as few lines as `most` characters a line allow, of similar lengths; words are never broken."""

    def wrapped(width: int) -> list[str]:
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    lines = len(wrapped(most))
    widths = range(1 + len(text) // max(1, lines), most)
    return next((text_lines for width in widths if len(text_lines := wrapped(width)) == lines), wrapped(most))


def data_text(data: Iterable[DataNote]) -> str:
    """Names all data of a figure, each once, and whether it was generated."""
    return ", ".join(dict.fromkeys(one.text for one in data))


def caption_data(figure: Figure, *data: DataNote) -> None:
    """Names the data in small print below a figure, and whether it was generated."""
    text = textwrap.fill(f"Data: {data_text(data)}", int(17 * figure.get_figwidth()))
    figure.supxlabel(text, fontsize=7.5, color=GREY)
