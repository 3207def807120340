"""The pictures of `rayfl data`: a split among clients, and rendered images.

Of a split, the number of samples and the classes of every client; of images, the views of some samples and, for
fractals, some codes.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rayfl.data.fractals.images import FractalImages
from rayfl.data.inputs import Rendered
from rayfl.data.split_facts import SplitFacts
from rayfl.runs.figures.recorded_run import DataNote
from rayfl.runs.figures.style import COLOURS, SCREEN, caption_data, drawing, write
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
        figure.suptitle("\n".join(lines), parse_math=False)
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


TRAIN, *OTHERS = COLOURS
MOST_COLUMNS = 200
"""Of more clients, this many are drawn, evenly spread over their numbers."""


def draw_split(facts: SplitFacts, title: str, data: DataNote, path: Path) -> None:
    """Writes a PNG of the samples of every client and, if there are any, its classes.

    Args:
        facts: The split in numbers.
        title: Title above the picture; its line breaks are kept.
        data: Named in a line below the picture.
        path: The file to write.
    """
    with drawing(SCREEN):
        figure = _figure(facts, title, data)
        write(figure, path)


def _figure(facts: SplitFacts, title: str, data: DataNote) -> Figure:
    with_classes = facts.distances is not None
    figure = Figure(figsize=(9, 8.4 if with_classes else 4.2), layout="constrained")
    clients = np.unique(np.linspace(0, len(facts.sizes) - 1, min(len(facts.sizes), MOST_COLUMNS)).round().astype(int))
    if with_classes:
        axes = figure.subplot_mosaic(
            [["sizes", "sizes"], ["shares", "shares"], ["classes", "distances"]], height_ratios=(3, 4, 3)
        )
        _draw_shares(figure, axes["shares"], facts, clients)
        _draw_histogram(axes["classes"], facts.classes, "classes of a client", whole=True)
        _draw_histogram(axes["distances"], facts.distances, "distance of a client from the global distribution")
        axes["distances"].set_xlim(0, 1)
        sizes = axes["sizes"]
    else:
        sizes = figure.subplots()
    _draw_sizes(sizes, facts, clients)
    lines = [textwrap.fill(line, 76) for line in title.splitlines()]
    figure.suptitle("\n".join(lines), parse_math=False)
    caption_data(figure, data)
    return figure


def _draw_sizes(axes: Axes, facts: SplitFacts, clients: np.ndarray) -> None:
    below = np.zeros(len(clients))
    stacked = [("training", facts.sizes, TRAIN)]
    stacked += [(name, sizes, OTHERS[i % len(OTHERS)]) for i, (name, sizes) in enumerate(facts.held_out.items())]
    for name, sizes, colour in stacked:
        axes.bar(
            np.arange(len(clients)),
            sizes[clients],
            bottom=below,
            width=1.0,
            color=colour,
            label=name,
            edgecolor="white",
            linewidth=0.3,
        )
        below = below + sizes[clients]
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("samples")
    axes.margins(x=0)
    if len(stacked) > 1:
        axes.legend(frameon=False, ncols=len(stacked), loc="lower left", bbox_to_anchor=(0, 1))
    _name_clients(axes, facts, clients)


def _draw_shares(figure: Figure, axes: Axes, facts: SplitFacts, clients: np.ndarray) -> None:
    image = axes.imshow(
        facts.shares(clients), aspect="auto", cmap="viridis", vmin=0, interpolation="nearest", origin="lower"
    )
    axes.grid(visible=False)
    axes.set_ylabel("class")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    bar.set_label("share of the client's samples")
    _name_clients(axes, facts, clients)


def _draw_histogram(axes: Axes, values: np.ndarray | None, label: str, whole: bool = False) -> None:
    assert values is not None
    top = int(values.max())
    bins = [edge + 0.5 for edge in range(top + 1)] if whole and top <= 40 else 20
    axes.hist(values, bins=bins, range=None if whole else (0, 1), color=TRAIN, edgecolor="white", linewidth=0.5)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("clients")
    axes.xaxis.set_major_locator(MaxNLocator(integer=whole))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _name_clients(axes: Axes, facts: SplitFacts, clients: np.ndarray) -> None:
    """Labels the columns with client numbers."""
    ticks = np.arange(0, len(clients), -(-len(clients) // 12))
    axes.set_xticks(ticks, [str(clients[tick]) for tick in ticks])
    some = f" ({len(clients)} of {len(facts.sizes):,})" if len(clients) < len(facts.sizes) else ""
    axes.set_xlabel(f"client{some}")
