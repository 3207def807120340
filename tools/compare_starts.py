"""python -m tools.compare_starts RECORDS --reference ROW: starting points at several rounds, with intervals.

RECORDS is a folder of `tools.start_records`; tables are Markdown. Every row of the grid that has all tasks and seeds is
compared with the reference, run by run: d_ts is the difference on task t from the start of seed s. Tasks and seeds are
crossed, since all seeds' starts meet the same tasks, so the model has both effects at random:

    d_ts = delta + T_t + S_s + E_ts.

Their variances are estimated by moments (a two-way analysis of variance, a negative component being 0), and the
interval is Student's t with Satterthwaite's degrees of freedom. Five seeds are too few clusters for a bootstrap or for
cluster-robust errors, which are too narrow then; for this balanced design the moments are also those of REML wherever
no component is 0.

Tasks that draw k of K classes share some, so their effects are not independent draws from all the tasks that there
might be. By default the interval is for other tasks and seeds with these K classes. With `--overlap` k / K it is for
other classes too: a task's effect is then taken as the mean of its classes' effects, so those of two tasks correlate by
the share of classes that they have in common, on average k / K.
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
"""By task and seed."""


class Estimate(NamedTuple):
    """A mean, and how far its 95 % interval reaches to both sides."""

    mean: float
    margin: float


def crossed(differences: np.ndarray, overlap: float = 0.0, level: float = 0.95) -> Estimate:
    """The mean of d_ts with its interval; see above.

    Args:
        differences: float64 [tasks, seeds], two or more of each.
        overlap: How the effects of two tasks correlate.
        level: Of the interval.
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
    # never fewer than the part with the fewest has, which a part that is taken off could bring about
    degrees = max(parts.sum() ** 2 / (parts**2 / freedom).sum(), float(freedom.min()))
    return Estimate(float(centre), float(t.ppf((1 + level) / 2, degrees)) * math.sqrt(variance))


def read(folder: Path, figure: str, round: int) -> dict[str, dict[tuple[int, int], float]]:
    """A figure of every run in one round, by row, in percent or squared percent.

    Args:
        folder: Of the records.
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
    """A row less the reference; None where it lacks a task or seed of the reference's."""
    if not reference.keys() <= values.keys():
        return None
    tasks, seeds = (sorted({key[axis] for key in reference}) for axis in (0, 1))
    if len(tasks) < 2 or len(seeds) < 2 or len(reference) < len(tasks) * len(seeds):
        return None
    cells = [[values[task, seed] - reference[task, seed] for seed in seeds] for task in tasks]
    return crossed(np.array(cells), overlap)


def table(folder: Path, figure: str, rounds: Sequence[int], reference: str, overlap: float) -> str:
    """Markdown: rows of the grid, a column for each round with the mean and the difference from the reference."""
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
    parser.add_argument("--reference", required=True, metavar="ROW", help="what the other rows are compared with")
    parser.add_argument("--figure", action="append", metavar="NAME", help=f"may be repeated ({', '.join(FIGURES)})")
    parser.add_argument("--round", action="append", type=int, metavar="N", help=f"may be repeated ({ROUNDS})")
    parser.add_argument("--overlap", type=float, default=0.0, metavar="SHARE", help="of classes, between tasks (0)")
    options = parser.parse_args(arguments)
    if not 0 <= options.overlap < 1:
        parser.error("--overlap: must be at least 0 and less than 1")
    for figure in options.figure or FIGURES:
        unit = "%²" if "variance" in figure else "%"
        print(f"\n{figure}, {unit}: mean, and less {options.reference} with a 95 % interval\n")
        print(table(options.records, figure, options.round or ROUNDS, options.reference, options.overlap))


if __name__ == "__main__":
    main()
