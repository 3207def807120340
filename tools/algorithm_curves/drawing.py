"""The picture of one curve, with FedAvg in grey beside it."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

import rayfl
from rayfl.files import atomic_write
from tools.algorithm_curves.settings import REFERENCE, SETTINGS, Curve, reference_of

GREY = "#9a9a9a"
SMOOTH = 3
DPI = 200
COLOURS = 64


def figure_of(curve: Curve, records: Path) -> Figure:
    """Draws the kept run of a curve, and that of FedAvg in its setting."""
    shown = [curve] if curve.algorithm == REFERENCE else [curve, reference_of(curve)]
    folders = [records / one.name for one in shown]
    figure = rayfl.plot(*folders, metrics=SETTINGS[curve.setting].metric, smooth=SMOOTH)
    if len(shown) > 1:
        for line in (figure.axes[0].lines[1], figure.legends[0].get_lines()[1]):
            line.set_color(GREY)
            line.set_zorder(1.9)  # behind the algorithm's
    return figure


def draw(curve: Curve, records: Path, figures: Path) -> None:
    """Writes a curve's picture. The same records give the same bytes."""
    figures.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    figure_of(curve, records).savefig(drawn, format="png", dpi=DPI)
    with atomic_write(figures / f"{curve.algorithm}.png") as path, Image.open(drawn) as picture:
        # a palette takes a third of the space
        picture.convert("RGB").quantize(COLOURS).save(path, format="png", optimize=True)
