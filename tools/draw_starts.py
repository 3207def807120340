"""python -m tools.draw_starts RECORDS --reference ROW --out FILE: draws starting points relative to one of them.

RECORDS is a folder from `tools.start_records`. Each figure has a panel with a line for every row of the grid and a
point for each round: the mean difference from the reference, with the 95 % interval of `tools.compare_starts`. If an
interval includes 0, the experiment cannot tell the two apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rayfl.runs.figures.style import SCREEN, drawing, write
from tools.compare_starts import Estimate, compared, read

FIGURES = {
    "test_accuracy_pooled_mean": "mean accuracy, points",
    "test_accuracy_pooled_variance": "variance over clients, %²",
}
ROUNDS = (1, 5, 20)
COLOURS = ("#9ecae1", "#4292c6", "#08306b")
APART = 0.24
"""Distance between the lines of two rounds, as a share of the row height."""


def differences(
    folder: Path, figure: str, rounds: Sequence[int], reference: str, overlap: float
) -> dict[str, dict[int, Estimate]]:
    """Returns the differences from the reference by row and round, without rows that lack some of its runs.

    Args:
        folder: Folder of the records.
        figure: A column of rounds.parquet.
        rounds: Rounds of the tasks.
        reference: The row that the others are compared with.
        overlap: See `tools.compare_starts`.
    """
    found: dict[str, dict[int, Estimate]] = {}
    for round in rounds:
        rows = read(folder, figure, round)
        if not rows:
            raise SystemExit(f"--round: no run was evaluated in round {round}")
        if reference not in rows:
            raise SystemExit(f"--reference: there is no row '{reference}'; known: {', '.join(rows)}")
        for name, values in rows.items():
            estimate = compared(values, rows[reference], overlap)
            if name != reference and estimate is not None:
                found.setdefault(name, {})[round] = estimate
    return found


def draw(panels: Mapping[str, Mapping[str, Mapping[int, Estimate]]], reference: str, path: Path) -> None:
    """Draws a panel for each figure.

    Args:
        panels: Results of `differences` by figure.
        reference: Name of the reference row.
        path: Path of the picture.
    """
    with drawing(SCREEN):
        write(_figure(panels, reference), path)


def _figure(panels: Mapping[str, Mapping[str, Mapping[int, Estimate]]], reference: str) -> Figure:
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    figure = Figure(figsize=(3.4 + 3.2 * len(panels), 1.2 + 0.34 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for place, (column, panel) in enumerate(panels.items()):
        _panel(axes[place], panel, names)
        axes[place].set_xlabel(f"{FIGURES.get(column, column)}: from {reference}")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(ROUNDS), frameon=False)
    return figure


def _panel(axes: Axes, panel: Mapping[str, Mapping[int, Estimate]], names: Sequence[str]) -> None:
    rounds = sorted({round for estimates in panel.values() for round in estimates})
    for place, round in enumerate(rounds):
        rows = [(number, panel[name][round]) for number, name in enumerate(names) if round in panel.get(name, {})]
        heights = [number + APART * (place - (len(rounds) - 1) / 2) for number, _ in rows]
        axes.errorbar(
            [estimate.mean for _, estimate in rows], heights, xerr=[estimate.margin for _, estimate in rows],
            fmt="o", markersize=3.5, linewidth=1.2, color=COLOURS[place % len(COLOURS)], label=f"round {round}",
        )  # fmt: skip
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.grid(visible=False, axis="y")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, metavar="RECORDS", help="a folder with rounds.parquet")
    parser.add_argument("--reference", required=True, metavar="ROW", help="row with which the others are compared")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the picture, such as starts.png")
    parser.add_argument("--figure", action="append", metavar="NAME", help=f"may be repeated ({', '.join(FIGURES)})")
    parser.add_argument("--round", action="append", type=int, metavar="N", help=f"may be repeated {ROUNDS}")
    parser.add_argument("--overlap", type=float, default=0.0, metavar="SHARE", help="classes that tasks share (0)")
    options = parser.parse_args(arguments)
    if not 0 <= options.overlap < 1:
        parser.error("--overlap: must be at least 0 and less than 1")
    rounds = sorted(set(options.round or ROUNDS))
    panels = {
        figure: differences(options.records, figure, rounds, options.reference, options.overlap)
        for figure in options.figure or FIGURES
    }
    if not any(panels.values()):
        raise SystemExit(
            f"{options.records}: no row has all runs of '{options.reference}' with at least two tasks and two seeds"
        )
    draw(panels, options.reference, options.out)


if __name__ == "__main__":
    main()
