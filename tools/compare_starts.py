"""python -m tools.compare_starts RECORDS --reference ROW: compares starting points, with intervals.

RECORDS is a folder from `tools.start_records`; tables are printed as Markdown. Every row of the grid that has all tasks
and seeds is compared with the reference, run by run: d_ts is the difference on task t with the start of seed s. Tasks
and seeds are crossed, because the starts of all seeds have the same tasks, so the model has random effects of both:

    d_ts = delta + T_t + S_s + E_ts.

Their variances are estimated by moments (a two-way analysis of variance; negative components count as 0). The interval
is Student's t with Satterthwaite's degrees of freedom. Five seeds are too few clusters for a bootstrap or for
cluster-robust errors, which would be too narrow. For this balanced design, the moments equal REML unless a component
is 0.

Tasks that draw k of K classes share some of them, so their effects are not independent draws from all possible tasks.
By default, the interval is for other tasks and seeds with the same K classes. With `--overlap` k / K it is also for
other classes: the effect of a task is then the mean effect of its classes, so the effects of two tasks correlate by the
share of classes that they have in common, on average k / K.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import t

FIGURES = ("test_accuracy_pooled_mean", "test_accuracy_pooled_variance")
ROUNDS = (1, 2, 5, 10, 20)

Values = Mapping[tuple[int, int], float]
"""Values by task and seed."""


class Estimate(NamedTuple):
    """A mean and the half-width of its 95 % interval."""

    mean: float
    margin: float


def crossed(differences: np.ndarray, overlap: float = 0.0, level: float = 0.95) -> Estimate:
    """Returns the mean of d_ts with its interval; see above.

    Args:
        differences: float64 [tasks, seeds], at least two of each.
        overlap: Correlation between the effects of two tasks.
        level: Level of the interval.
    """
    tasks, seeds = differences.shape
    centre = differences.mean()
    of_tasks, of_seeds = differences.mean(axis=1) - centre, differences.mean(axis=0) - centre
    rest = differences - centre - of_tasks[:, None] - of_seeds
    freedom = np.array([tasks - 1, seeds - 1, (tasks - 1) * (seeds - 1)])
    squares = np.array([seeds * (of_tasks**2).sum(), tasks * (of_seeds**2).sum(), (rest**2).sum()]) / freedom
    weights = np.array([0.0, 0.0, 1.0])
    if squares[0] > squares[2]:
        weights += np.array([1, 0, -1]) * (1 + (tasks - 1) * overlap) / (1 - overlap)
    if squares[1] > squares[2]:
        weights += np.array([0, 1, -1])
    parts = weights * squares
    variance = parts.sum() / differences.size
    if not variance:
        return Estimate(float(centre), 0.0)
    # never below those of the smallest part, which a subtracted part could otherwise cause
    degrees = max(parts.sum() ** 2 / (parts**2 / freedom).sum(), float(freedom.min()))
    return Estimate(float(centre), float(t.ppf((1 + level) / 2, degrees)) * math.sqrt(variance))


def read(folder: Path, figure: str, round: int) -> dict[str, dict[tuple[int, int], float]]:
    """Reads a figure of every run in one round, by row, in percent or squared percent.

    Args:
        folder: Folder of the records.
        figure: A column of rounds.parquet.
        round: The round of the tasks.
    """
    scale = 1e4 if "variance" in figure else 100
    found: dict[str, dict[tuple[int, int], float]] = {}
    for line in pq.read_table(folder / "rounds.parquet").to_pylist():
        if line["round"] == round:
            found.setdefault(line["row"], {})[line["task"] or 0, line["seed"]] = scale * line[figure]
    return found


def compared(values: Values, reference: Values, overlap: float) -> Estimate | None:
    """Compares a row with the reference; None if it lacks a task or seed of the reference."""
    if not reference.keys() <= values.keys():
        return None
    tasks, seeds = (sorted({key[axis] for key in reference}) for axis in (0, 1))
    if len(tasks) < 2 or len(seeds) < 2 or len(reference) < len(tasks) * len(seeds):
        return None
    cells = [[values[task, seed] - reference[task, seed] for seed in seeds] for task in tasks]
    return crossed(np.array(cells), overlap)


def table(folder: Path, figure: str, rounds: Sequence[int], reference: str, overlap: float) -> str:
    """Returns Markdown: a line per row of the grid, with mean and difference from the reference by round."""
    by_round = {round: read(folder, figure, round) for round in rounds}
    names = dict.fromkeys(name for rows in by_round.values() for name in rows)
    if reference not in names:
        raise SystemExit(f"--reference: there is no row '{reference}'; known: {', '.join(names)}")
    lines = ["| | " + " | ".join(f"round {round}" for round in rounds) + " |", "|---" * (len(rounds) + 1) + "|"]
    for name in names:
        cells = [_cell(by_round[round], name, reference, overlap) for round in rounds]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(rows: Mapping[str, Values], name: str, reference: str, overlap: float) -> str:
    values = rows.get(name)
    if not values:
        return ""
    mean = f"{np.mean(list(values.values())):.2f}"
    if name == reference:
        return mean
    found = compared(values, rows[reference], overlap)
    if found is None:
        return f"{mean} ({len(values)} of {len(rows[reference])} runs)"
    low, high = found.mean - found.margin, found.mean + found.margin
    return f"{mean}, {found.mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, metavar="RECORDS", help="a folder with rounds.parquet")
    parser.add_argument("--reference", required=True, metavar="ROW", help="row with which the others are compared")
    parser.add_argument("--figure", action="append", metavar="NAME", help=f"may be repeated ({', '.join(FIGURES)})")
    parser.add_argument("--round", action="append", type=int, metavar="N", help=f"may be repeated ({ROUNDS})")
    parser.add_argument("--overlap", type=float, default=0.0, metavar="SHARE", help="classes that tasks share (0)")
    options = parser.parse_args(arguments)
    if not 0 <= options.overlap < 1:
        parser.error("--overlap: must be at least 0 and less than 1")
    for figure in options.figure or FIGURES:
        unit = "%²" if "variance" in figure else "%"
        print(f"\n{figure}, {unit}: mean, and difference from {options.reference} with a 95 % interval\n")
        print(table(options.records, figure, options.round or ROUNDS, options.reference, options.overlap))


if __name__ == "__main__":
    main()
