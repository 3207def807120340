"""The picture of rendered images that `rayfl data` draws: the views of some samples and, for fractals, some codes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rayfl.data.fractals.images import FractalImages
from rayfl.data.inputs import Rendered
from rayfl.runs.figures.recorded_run import DataNote
from rayfl.runs.figures.style import SCREEN, caption_data, drawing, write
from rayfl.streams import stream

PAIRS, CODES, IN_A_ROW = 24, 36, 12
"""At most this many pairs and codes are drawn; images per row."""


def draw_sheet(images: Rendered, title: str, data: DataNote, seed: int, path: Path) -> None:
    """Writes a PNG of rendered images as training sees them before any augmentation.

    Args:
        images: Training images. Draws the views of the first ones and, for fractals, the first codes.
        title: Title above the picture; its line breaks are kept.
        data: Named in a line below the picture.
        seed: Seed of the data; the same seed gives the same picture.
        path: The file to write.
    """
    rngs = [stream(seed, "image sheet", view) for view in range(2)]
    first, second = _two_views(images, np.arange(min(PAIRS, len(images))), rngs)
    panels = [
        ("pairs: two views of a sample beside each other", np.stack([first, second], 1).reshape(-1, *first[0].shape))
    ]
    if isinstance(images, FractalImages):
        grey = images.objects(np.arange(min(CODES, len(images.codes))), rngs[0])
        panels.append(("codes, rendered without colour", (255 * np.sqrt(grey)).astype(np.uint8)[..., None]))
    with drawing(SCREEN):
        rows = [-(-len(drawn) // IN_A_ROW) for _, drawn in panels]
        figure = Figure(figsize=(9, 1.6 + 0.75 * sum(rows)), layout="constrained")
        places = figure.subplots(len(panels), squeeze=False, height_ratios=rows)[:, 0]
        for axes, (name, drawn) in zip(places, panels, strict=True):
            _draw_grid(axes, name, drawn)
        lines = [textwrap.fill(line, 76) for line in title.splitlines()]
        figure.suptitle("\n".join(lines))
        caption_data(figure, data)
        write(figure, path)


def _two_views(images: Rendered, rows: np.ndarray, rngs: list[np.random.Generator]) -> list[np.ndarray]:
    views = images.render_views(rows, rngs[:1] if images.shares_views else rngs)
    return [views[0], views[-1]]


def _draw_grid(axes: Axes, name: str, images: np.ndarray) -> None:
    """Draws images [n, height, width, channels] in a grid, two pixels apart."""
    _, height, width, channels = images.shape
    rows = -(-len(images) // IN_A_ROW)
    grid = np.full((rows, IN_A_ROW, height + 2, width + 2, channels), 255, np.uint8)
    grid.reshape(-1, *grid.shape[2:])[: len(images), 1:-1, 1:-1] = images
    shown = grid.transpose(0, 2, 1, 3, 4).reshape(rows * (height + 2), IN_A_ROW * (width + 2), channels)
    axes.imshow(np.repeat(shown, 3 // channels, 2), interpolation="nearest")
    axes.set_title(name, loc="left")
    axes.set_axis_off()
