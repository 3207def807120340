"""python -m tools.draw_architecture --out FILE: draws the data flow of a parallel round and of a relay round.

The drawing has its own light background, so it can be read on light and dark pages. It depends only on this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK, QUIET, PAPER = "#1f2933", "#52606d", "#fbfbfd"
CONTROL, MODELS = "#7b8794", "#b45309"
FILLS = {"driver": "#e4e7eb", "scheduler": "#dbeafe", "server": "#dcfce7", "store": "#fef3c7", "worker": "#ede9fe"}

Point = tuple[float, float]


def box(axes: Axes, kind: str, corner: Point, size: Point, title: str, lines: Sequence[str] = ()) -> None:
    """Draws a process or the object store, with its name and contents.

    Args:
        axes: Where to draw.
        kind: A key of `FILLS`.
        corner: Its lower left corner.
        size: Its width and height.
        title: Its name.
        lines: Lines below its name.
    """
    style = "round,pad=0,rounding_size=1"
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, facecolor=FILLS[kind], edgecolor=QUIET, linewidth=0.8))
    middle, top = corner[0] + size[0] / 2, corner[1] + size[1]
    axes.text(middle, top - 1.5, title, ha="center", va="top", fontsize=9.5, weight="bold", color=INK)
    for place, line in enumerate(lines):
        axes.text(middle, top - 5 - 2.9 * place, line, ha="center", va="top", fontsize=7.8, color=INK)


def arrow(axes: Axes, begin: Point, end: Point, label: str = "", at: Point = (0, 0), control: bool = False) -> None:
    """Draws a call (dashed, grey), or the transfer of a model or a sum (solid).

    Args:
        axes: Where to draw.
        begin: Where it starts.
        end: Where it ends.
        label: Text beside it.
        at: Position of the left end of the label.
        control: Whether it is a call that only carries references.
    """
    colour, line = (CONTROL, (0, (3, 2))) if control else (MODELS, "solid")
    axes.add_patch(
        FancyArrowPatch(
            begin, end, arrowstyle="-|>", mutation_scale=9, shrinkA=0, shrinkB=0, color=colour, linestyle=line, lw=1.3
        )
    )
    if label:
        axes.text(*at, label, ha="left", va="center", fontsize=7.8, color=QUIET if control else MODELS)


def processes(axes: Axes, title: str, server: Sequence[str]) -> None:
    """Draws the parts of both kinds of rounds: driver, scheduler, server and object store."""
    axes.set(xlim=(-0.5, 100.5), ylim=(0, 60))
    axes.axis("off")
    axes.text(0, 59.5, title, ha="left", va="top", fontsize=12, weight="bold", color=INK)
    box(axes, "driver", (0, 41), (22, 12), "driver", ["your program:", "records, callbacks"])
    box(axes, "scheduler", (36, 41), (24, 12), "scheduler", ["draws cohorts, commits", "rounds; holds references"])
    box(axes, "server", (76, 41), (24, 12), "server", server)
    box(axes, "store", (24, 26), (76, 6.4), "object store", [])
    arrow(axes, (36, 47), (22, 47), "events", (26, 49), control=True)
    arrow(axes, (60, 47), (76, 47), "calls", (65.5, 49), control=True)


def calls_to_workers(axes: Axes, label: str) -> None:
    """Draws the scheduler's calls to the worker processes, past the object store."""
    axes.plot((46, 46, 16, 16), (41, 36.7, 36.7, 8), color=CONTROL, linestyle=(0, (3, 2)), linewidth=1.3)
    arrow(axes, (16, 8), (24, 8), label, (2, 20.2), control=True)


def parallel_round(axes: Axes) -> None:
    """Draws a round in which the model is sent once and every worker process returns one sum."""
    processes(axes, "Parallel round", ["global model,", "algorithm state"])
    for place, clients in enumerate(("3, 17, 40", "8, 21, 35", "5, 12, 66")):
        left = 24 + 26 * place
        lines = ["one resident model", f"clients {clients}"]
        box(axes, "worker", (left, 2), (24, 12.5), f"worker process {place}", lines)
        arrow(axes, (left + 8, 26), (left + 8, 14.5), "read" if place == 0 else "", (left + 1.6, 20.2))
        arrow(axes, (left + 16, 14.5), (left + 16, 26), "one sum" if place == 0 else "", (left + 17, 20.2))
    arrow(axes, (82, 41), (82, 32.4), "model, once", (67.5, 36.7))
    arrow(axes, (94, 32.4), (94, 41), "sums", (95, 36.7))
    calls_to_workers(axes, "calls")


def relay_round(axes: Axes) -> None:
    """Draws a round whose clients train one after another in one worker process while the others evaluate."""
    processes(axes, "Relay round (sequential, cyclic)", ["adopts the round's", "model"])
    box(axes, "worker", (24, 2), (36, 12.5), "worker process 0", [])
    for place, client in enumerate((3, 17, 40, 8)):
        middle = 28.8 + 8.8 * place
        style = "round,pad=0,rounding_size=0.8"
        corner = (middle - 3, 4)
        axes.add_patch(FancyBboxPatch(corner, 6, 4.4, boxstyle=style, facecolor=PAPER, edgecolor=QUIET, linewidth=0.7))
        axes.text(middle, 6.1, str(client), ha="center", va="center", fontsize=8, color=INK)
        if place:
            arrow(axes, (middle - 5.8, 6.2), (middle - 3, 6.2))
    for place in (1, 2):
        left = 42.5 + 20 * place
        lines = ["evaluates an", "earlier round"]
        box(axes, "worker", (left, 2), (17.5, 12.5), f"worker {place}", lines)
        arrow(axes, (left + 8, 26), (left + 8, 14.5))
    arrow(axes, (29, 26), (29, 14.5), "model of the\nround before", (30, 20.2))
    arrow(axes, (54, 14.5), (54, 26), "its model", (45.2, 20.2))
    arrow(axes, (88, 32.4), (88, 41), "model", (89, 36.7))
    calls_to_workers(axes, "calls, one\nround ahead")


def draw(path: Path) -> None:
    """Draws both rounds to a file, in the format of its extension."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rayfl", "font.family": "sans-serif"}):
        figure = Figure(figsize=(7.6, 8.4), facecolor=PAPER)
        parallel, relay = figure.subplots(2, 1)
        figure.subplots_adjust(left=0.03, right=0.97, top=0.98, bottom=0.05, hspace=0.06)
        parallel_round(parallel)
        relay_round(relay)
        legend = "solid: models and sums; dashed: calls and events, which carry references and small records"
        figure.text(0.03, 0.02, legend, fontsize=8, color=QUIET)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Draws from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.draw_architecture", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file, such as docs/figures/architecture.svg")
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
