"""A split among clients: the number of samples and the classes of every client, or of some of many.

`rayfl data` draws it for a scenario, and the page of a run from what the run recorded when it began.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rayfl.data.split_facts import ShownSplit, SplitFacts
from rayfl.runs.figures.recorded_run import DataNote
from rayfl.runs.figures.style import COLOURS, PAGE_INCHES, SCREEN, caption_data, drawing, write

TRAIN, *OTHERS = COLOURS
SCREEN_INCHES = 9.0


def draw_split(split: ShownSplit, facts: SplitFacts, title: str, data: DataNote, path: Path) -> None:
    """Draws the samples of clients and, if there are any, their classes.

    Args:
        split: The clients to show one by one.
        facts: Of all clients, for the histograms.
        title: Title above the picture; its line breaks are kept.
        data: Named in a line below the picture.
        path: The file to write, `.png`, `.svg` or `.pdf`.
    """
    with drawing(SCREEN):
        figure = _figure(split, facts.classes, facts.distances, SCREEN_INCHES)
        lines = [textwrap.fill(line, 76) for line in title.splitlines()]
        figure.suptitle("\n".join(lines))
        caption_data(figure, data)
        write(figure, path)


def split_of(split: ShownSplit) -> Figure:
    """Draws what a run recorded of its split, within `drawing`."""
    with_classes = split.counts is not None
    classes, distances = (split.classes, split.distances) if with_classes else (None, None)
    return _figure(split, classes, distances, PAGE_INCHES)


def _figure(split: ShownSplit, classes: np.ndarray | None, distances: np.ndarray | None, width: float) -> Figure:
    rows = {
        "sizes": 3,
        **({} if split.counts is None else {"shares": 4}),
        **({} if classes is None else {"classes": 3}),
    }
    figure = Figure(figsize=(width, width * (0.17 + 0.1 * sum(rows.values()))), layout="constrained")
    axes = figure.subplot_mosaic(
        [[name, "distances" if name == "classes" else name] for name in rows], height_ratios=[*rows.values()]
    )
    if split.counts is not None:
        _draw_shares(figure, axes["shares"], split)
    if classes is not None:
        of_all = len(classes) == split.num_clients
        counted = "clients" if of_all else f"of {len(split.clients)} clients"
        _draw_histogram(axes["classes"], classes, "classes of a client", counted, whole=True)
        _draw_histogram(axes["distances"], distances, "distance of a client from the global distribution", counted)
        axes["distances"].set_xlim(0, 1)
    _draw_sizes(axes["sizes"], split)
    return figure


def _draw_sizes(axes: Axes, split: ShownSplit) -> None:
    places, below = np.arange(len(split.clients)), np.zeros(len(split.clients))
    for number, (name, sizes) in enumerate(split.samples.items()):
        axes.bar(
            places,
            sizes,
            bottom=below,
            width=1.0,
            color=TRAIN if not number else OTHERS[(number - 1) % len(OTHERS)],
            label=name,
            edgecolor="white",
            linewidth=0.3,
        )
        below = below + np.array(sizes)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("samples")
    axes.margins(x=0)
    if len(split.samples) > 1:
        axes.legend(frameon=False, ncols=len(split.samples), loc="lower left", bbox_to_anchor=(0, 1))
    _name_clients(axes, split)


def _draw_shares(figure: Figure, axes: Axes, split: ShownSplit) -> None:
    image = axes.imshow(split.shares.T, aspect="auto", cmap="viridis", vmin=0, interpolation="nearest", origin="lower")
    axes.grid(visible=False)
    axes.set_ylabel("class")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    bar.set_label("share of the client's samples")
    _name_clients(axes, split)


def _draw_histogram(axes: Axes, values: np.ndarray | None, label: str, counted: str, whole: bool = False) -> None:
    assert values is not None
    top = int(values.max())
    bins = [edge + 0.5 for edge in range(top + 1)] if whole and top <= 40 else 20
    axes.hist(values, bins=bins, range=None if whole else (0, 1), color=TRAIN, edgecolor="white", linewidth=0.5)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(counted)
    axes.xaxis.set_major_locator(MaxNLocator(integer=whole))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _name_clients(axes: Axes, split: ShownSplit) -> None:
    """Labels the columns with client numbers."""
    shown = len(split.clients)
    ticks = np.arange(0, shown, -(-shown // 12))
    axes.set_xticks(ticks, [str(split.clients[tick]) for tick in ticks])
    some = f" ({shown} of {split.num_clients:,})" if shown < split.num_clients else ""
    axes.set_xlabel(f"client{some}")
