"""How figures and tables look in print: widths, colours, dashes and markers, and texts in lines of similar lengths.

Colours are told apart by the colour-blind; dashes and markers serve greyscale.
"""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

COLUMN_INCHES, PAGE_INCHES = 3.4, 7.0
"""Widths of a column and of a page of most proceedings."""

_COLOURS = ("#0b4f8a", "#d55e00", "#56b4e9", "#000000", "#009e73", "#aa4499", "#e69f00", "#882255")
"""Okabe and Ito's palette with a darker blue, and two of Tol's; the first four differ in lightness too."""

BAND_ALPHA, EDGE_ALPHA = 0.12, 0.6
"""Opacities of a band and of the thin lines along its edges, by which overlapping bands are told apart in grey."""

_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.3, 1.2, 1.3)), (0, (8, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">", "h")
MOST_LINES = 3 * len(_COLOURS)

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
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.35,
    "legend.borderaxespad": 0.2,
    "figure.constrained_layout.w_pad": 0.05,
    "figure.constrained_layout.h_pad": 0.03,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.hashsalt": "rayfl",
}
"""matplotlib's parameters on top of its defaults; `svg.hashsalt` makes the identifiers in an SVG repeatable."""


class LineStyle(NamedTuple):
    """The look of one line."""

    colour: str
    dash: Any
    marker: str


def line_style(place: int) -> LineStyle:
    """The look of the line at a place of the legend; no two of `MOST_LINES` are alike."""
    turn, colour = divmod(place, len(_COLOURS))
    return LineStyle(_COLOURS[colour], _DASHES[(place + turn) % len(_DASHES)], _MARKERS[place % len(_MARKERS)])


def balanced(text: str, most: int) -> list[str]:
    """The text in as few lines as `most` characters a line allow, of similar lengths; words are never broken."""

    def wrapped(width: int) -> list[str]:
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    lines = len(wrapped(most))
    widths = range(1 + len(text) // max(1, lines), most)
    return next((text_lines for width in widths if len(text_lines := wrapped(width)) == lines), wrapped(most))
