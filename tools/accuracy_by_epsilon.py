"""python -m tools.accuracy_by_epsilon OUT.png GRID [GRID ...]: plots accuracy against epsilon and prints a table.

GRID is the folder of a grid with runs. Rows named "ARM, ε = 2" or columns named "ε = 2" become points of a curve; a row
without an epsilon becomes a horizontal line. The table is printed as Markdown.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rayfl.runs.figures.style import SCREEN, drawing, line_style, write

DASHES = ((12, 3), (1, 2), (6, 2, 1, 2), (4, 4), (6, 2, 1, 2, 1, 2), (2, 6))

Accuracies = dict[str, dict[float | None, list[float]]]
"""Accuracies after the last round in percent, one per seed, by arm and epsilon (None for arms without)."""


def read(folders: Sequence[Path]) -> Accuracies:
    """Reads the accuracies of all finished runs.

    Raises:
        SystemExit: Two grids have the same arm and epsilon.
    """
    found: Accuracies = {}
    for folder in folders:
        of_grid: Accuracies = {}
        for run in pq.read_table(folder / "table.parquet").to_pylist():
            if run["status"] != "finished":
                continue
            given = re.search(r"ε = ([0-9.]+)", f"{run['row']}, {run['column']}")
            arm = re.sub(r",? *ε = [0-9.]+", "", run["row"])
            epsilon = float(given[1]) if given else None
            of_grid.setdefault(arm, {}).setdefault(epsilon, []).append(run["last"])
        for arm, values in of_grid.items():
            if set(values) & set(found.get(arm, {})):
                raise SystemExit(f"'{arm}' is in two grids with the same epsilon")
            found.setdefault(arm, {}).update(values)
    return found


def table(accuracies: Accuracies) -> str:
    """Returns Markdown with a row per arm and a column per epsilon: mean and standard deviation over seeds."""
    columns = sorted({epsilon for values in accuracies.values() for epsilon in values if epsilon is not None})
    lines = ["| | " + " | ".join(f"ε = {epsilon:g}" for epsilon in columns) + " | no ε |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for arm, values in accuracies.items():
        cells = [_mean_and_deviation(values.get(epsilon, [])) for epsilon in [*columns, None]]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean_and_deviation(values: Sequence[float]) -> str:
    if not values:
        return ""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def draw(accuracies: Accuracies, path: Path) -> None:
    """Draws a curve with standard deviations for each arm with epsilons, and a horizontal line for each other arm."""
    with drawing(SCREEN):
        write(_figure(accuracies), path)


def _figure(accuracies: Accuracies) -> Figure:
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    curves = [arm for arm, values in accuracies.items() if set(values) != {None}]
    for place, arm in enumerate(curves):
        look = line_style(place)
        points = sorted((epsilon, values) for epsilon, values in accuracies[arm].items() if epsilon is not None)
        axes.errorbar(
            [epsilon for epsilon, _ in points],
            [statistics.mean(values) for _, values in points],
            yerr=[statistics.stdev(values) if len(values) > 1 else 0.0 for _, values in points],
            color=look.colour,
            marker=look.marker,
            linestyle=look.dash,
            markersize=5,
            capsize=3,
            linewidth=1.4,
            label=arm,
        )
    levels = [arm for arm in accuracies if arm not in curves]
    for arm, dashes in zip(levels, DASHES * 2, strict=False):
        level = statistics.mean(accuracies[arm][None])
        axes.axhline(level, color="grey", linestyle=(0, dashes), linewidth=1.2, label=arm)
    epsilons = sorted({epsilon for values in accuracies.values() for epsilon in values if epsilon is not None})
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("ε of the whole run")
    axes.set_ylabel("Test accuracy after the last round (%)")
    handles, labels = axes.get_legend_handles_labels()
    entries = sorted(zip(handles, labels, strict=True), key=lambda entry: entry[1] in levels)
    axes.legend(
        *zip(*entries, strict=True), loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, handlelength=4
    )
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy_by_epsilon", description=__doc__.split("\n")[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("grids", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    accuracies = read(options.grids)
    draw(accuracies, options.picture)
    print(table(accuracies))


if __name__ == "__main__":
    main()
