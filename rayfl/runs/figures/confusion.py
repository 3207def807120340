"""The confusion matrix of a run as a heat map: where the samples of each class are predicted."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rayfl.runs.figures.notebook import NotebookFigure
from rayfl.runs.figures.style import COLUMN_INCHES

WRITTEN = 12
"""With up to this many classes, every cell has its share in writing."""

MAP = "viridis"
"""Colours of shares, which differ in lightness too."""


def confusion_of(counts: np.ndarray) -> Figure:
    """Draws a confusion matrix with the current parameters of matplotlib.

    Args:
        counts: int64 [classes, classes], samples by label, then by predicted class.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    width = COLUMN_INCHES * (1.35 if len(counts) > 5 else 1)
    figure = NotebookFigure(figsize=(width, 0.84 * width), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap=MAP, vmin=0, vmax=1, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xlabel("Predicted class")
    axes.set_ylabel("Class")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=WRITTEN, integer=True, min_n_ticks=1))
    if len(counts) <= WRITTEN:
        for (label, predicted), share in np.ndenumerate(shares):
            colour = "black" if share > 0.6 else "white"
            axes.text(predicted, label, f"{100 * share:.0f}", color=colour, ha="center", va="center", fontsize=6)
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    bar.set_label("share of the class's samples")
    return figure
