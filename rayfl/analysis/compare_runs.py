"""python -m rayfl.analysis.compare_runs OUT.png RUN [RUN ...]: the accuracy of several runs, drawn and tabulated.

A run is a folder that rayfl left. Runs of one scenario, or of one cell of a grid, share a colour; the table is
Markdown, on stdout. Below it stands whether runs that name the same code or data of the user had another version of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rayfl.command_line.ending import exit_status
from rayfl.config.loading import read_toml
from rayfl.reading import read_json_object, reading
from rayfl.report.recorded_metrics import read_rows

COLOURS = ("#2166ac", "#b35806", "#1b7837", "#762a83")
TAIL = 5
"""Evaluations at the end whose mean is a run's final accuracy: single rounds jump under skewed partitions."""


@dataclass(frozen=True)
class Run:
    """name: of its scenario, or of its row and column in a grid; rounds [n]; accuracy [n] in percent."""

    folder: Path
    name: str
    scenario: dict[str, Any]
    rounds: np.ndarray
    accuracy: np.ndarray


def read_run(folder: Path) -> Run:
    """The scenario and the curve of a finished run.

    Raises:
        RayflError: The folder has no records of one, or damaged ones.
    """
    scenario, row, column = read_toml(folder / "scenario.toml"), *folder.absolute().parts[-3:-1]
    with reading(folder, "as the records of a finished run"):
        lines = sorted(read_rows(folder), key=lambda line: line["round"])
        return Run(
            folder,
            # as grids lay out their runs
            f"{row}, {column}" if folder.name.startswith("seed_") else str(scenario["name"]),
            scenario,
            np.array([line["round"] for line in lines]),
            np.array([100 * line["test_accuracy"] for line in lines]),
        )


def table(runs: Sequence[Run]) -> str:
    """A row per run: best accuracy and its round, the mean of the last evaluations, and the last."""
    rows = [
        f"| scenario | seed | best accuracy | in round | mean of the last {TAIL} evaluations | last |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        best = int(run.accuracy.argmax())
        rows.append(
            f"| `{run.name}` | {run.scenario['seed']} | {run.accuracy[best]:.2f} % | {run.rounds[best]} | "
            f"{run.accuracy[-TAIL:].mean():.2f} % | {run.accuracy[-1]:.2f} % |"
        )
    return "\n".join(rows)


def versions(runs: Sequence[Run]) -> list[str]:
    """A sentence for every module and every data set of which the records name more than one version."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        for of, digest in _digests(run):
            found.setdefault(of, {}).setdefault(digest, []).append(str(run.folder))
    return [
        f"Not the same {what}: {' | '.join(', '.join(folders) for folders in by_digest.values())}."
        for (what, _), by_digest in found.items()
        if len(by_digest) > 1
    ]


def _digests(run: Run) -> Iterator[tuple[tuple[str, str], str]]:
    """(what, what was asked for) and the digest, of the user's modules and of the data; older records have none."""
    records = run.folder / "environment.json"
    environment = read_json_object(records) if records.exists() else {}
    for module, digest in environment.get("code", {}).items():
        yield (f"code of `{module}`", ""), digest
    data = environment.get("data", {})
    if data.get("digest"):
        # what a program makes may depend on all that it is given
        keys = ("name", "source", "options") if data["files"] else sorted(run.scenario["data"])
        asked = json.dumps([run.scenario["data"].get(key) for key in keys])
        seed = "" if data["files"] else f" with seed {data['seed']}"
        yield (f"data of `{data['name']}`{seed}", asked), data["digest"]


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Means over a centred window, [n]; nearer to an end, the window is as wide as fits symmetrically."""
    half = window // 2
    reach = [min(half, place, len(values) - 1 - place) for place in range(len(values))]
    return np.array([values[place - wide : place + wide + 1].mean() for place, wide in enumerate(reach)])


def draw(runs: Sequence[Run], path: Path, window: int = 1) -> None:
    """Writes the PNG: accuracy in percent against the round.

    Args:
        runs: What to draw.
        path: Where to.
        window: Evaluations over which curves are smoothed; what was evaluated then lies behind them, pale.
    """
    figure = Figure(figsize=(8, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(run.name for run in runs))
    styles = ("-", "--", ":", "-.")
    for run in runs:
        place = names.index(run.name)
        order = [other for other in runs if other.name == run.name].index(run)
        label = f"{run.name}, seed {run.scenario['seed']}"
        style, colour = styles[order % 4], COLOURS[place % 4]
        if window > 1:
            axes.plot(run.rounds, run.accuracy, color=colour, linewidth=0.6, alpha=0.3)
        axes.plot(run.rounds, smoothed(run.accuracy, window), style, color=colour, linewidth=1.4, label=label)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right")
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; `exit_status` explains what it returns."""
    parser = argparse.ArgumentParser(prog="python -m rayfl.analysis.compare_runs", description=__doc__.split("\n")[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument(
        "--smooth",
        type=int,
        default=1,
        metavar="N",
        help="draw means over N evaluations, an odd number",
    )
    options = parser.parse_args(arguments)
    return exit_status(lambda: _compare(options.runs, options.picture, options.smooth))


def _compare(folders: Sequence[Path], picture: Path, window: int) -> int:
    runs = sorted(map(read_run, folders), key=lambda run: (run.name, run.scenario["seed"]))
    draw(runs, picture, window)
    print(table(runs))
    for sentence in versions(runs):
        print(f"\n{sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
