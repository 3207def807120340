"""Figures as data URIs, so that a page needs no other file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rayfl.figures.groups import Recorded
from rayfl.figures.page.parts import Picture
from rayfl.figures.plot import figure_of
from rayfl.figures.quantities import X
from rayfl.figures.styles import COLUMN_INCHES, RC, line_style
from rayfl.report.picture import DRAWING

BINS = 20
REM_PER_INCH = 8
"""A figure for print is a third larger on a screen, where its text would be small."""


def curves(recorded: Recorded, names: Sequence[str], caption: str, x: X = "rounds") -> Picture:
    """Learning curves, as `rayfl.plot` draws them."""
    with DRAWING, matplotlib.style.context(["default", RC]):
        return _picture(figure_of(recorded, names, x), caption)


def histogram(values: np.ndarray, label: str, caption: str) -> Picture:
    """How many clients have which value."""
    counts, edges = np.histogram(values, bins=min(BINS, max(1, len(np.unique(values)))))
    return bars(edges, counts, label, caption)


def bars(edges: Sequence[float] | np.ndarray, counts: Sequence[int] | np.ndarray, label: str, caption: str) -> Picture:
    """A histogram that has been counted: the edges of its bins, one more than counts of clients."""
    with DRAWING, matplotlib.style.context(["default", RC]):
        figure = Figure(figsize=(COLUMN_INCHES, 1.9), layout="constrained")
        axes = figure.subplots()
        axes.stairs(np.asarray(counts), np.asarray(edges), fill=True, color=line_style(0).colour, alpha=0.85)
        axes.set_xlabel(label[:1].upper() + label[1:], parse_math=False)
        axes.set_ylabel("Clients")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        return _picture(figure, caption)


def _picture(figure: Figure, caption: str) -> Picture:
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    source = f"data:image/svg+xml;base64,{b64encode(file.getvalue()).decode()}"
    return Picture(caption, source, round(REM_PER_INCH * figure.get_figwidth(), 1))
