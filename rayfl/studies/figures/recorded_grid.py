"""The finished runs of a grid, in its order: from their own folders, or from one file that keeps them all."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.rounds import PhaseSpan
from rayfl.errors import DataError
from rayfl.files import reading, relative
from rayfl.runs.folder import METRICS_FILE
from rayfl.runs.status import read_status
from rayfl.studies.figures.recorded_run import DataNote, RecordedRun, from_rows, is_run, read_run
from rayfl.studies.figures.scores import higher_is_better
from rayfl.studies.grid.schema import folder_name

TABLE_FILE = "table.parquet"
ROUNDS_FILE = "rounds.parquet"
"""The rounds of all runs of a grid, without their folders."""

KEYS = ("row", "column", "seed", "task")


@dataclass(frozen=True)
class RecordedGrid:
    """The finished runs of a grid.

    Attributes:
        runs: In the order of the grid's rows and columns.
        notes: Remarks on the other runs, which failed, were interrupted or lost, or have not ended yet.
    """

    runs: tuple[RecordedRun, ...]
    notes: tuple[str, ...]


def is_grid(folder: Path) -> bool:
    """Whether a folder holds a grid's table, or runs laid out as a grid lays them out."""
    return (folder / TABLE_FILE).is_file() or next(run_folders(folder), None) is not None


def read_grid(folder: Path) -> RecordedGrid:
    """Reads the finished runs of a grid.

    Raises:
        DataError: None has finished, or their rounds were not kept.
        ResourceError: The records are damaged.
    """
    if not (folder / TABLE_FILE).is_file():
        paths = list(run_folders(folder))
        found = _grid_of(paths, [None] * len(paths), folder, ())
    else:
        with reading(folder / TABLE_FILE, "as the table of a grid"):
            table = pq.read_table(folder / TABLE_FILE).to_pylist()
            done = [row for row in table if row["status"] == "finished"]
            failed = [row for row in table if row["status"] != "finished"]
            paths = [_folder_of(folder, row) for row in done]
        notes = _failures(failed)
        if done and all(is_run(path) for path in paths):
            title = title_of(folder)
            found = _grid_of(paths, [(title, row["row"], row["column"]) for row in done], folder, notes)
        elif (folder / ROUNDS_FILE).is_file():
            found = RecordedGrid(tuple(_kept_rounds(folder, done)), notes)
        elif done:
            raise DataError(
                f"'{folder}' has only the table of a grid, not its rounds: it has neither run folders with "
                f"{METRICS_FILE} nor {ROUNDS_FILE}; name the folder in which the grid was run"
            )
        else:
            found = RecordedGrid((), notes)
    if not found.runs:
        raise DataError(f"'{folder}': no run of the grid has finished; run rayfl grid again to continue")
    return found


def _grid_of(
    paths: Sequence[Path], labels: Sequence[tuple[str, str, str] | None], folder: Path, notes: tuple[str, ...]
) -> RecordedGrid:
    finished = [(path, label) for path, label in zip(paths, labels, strict=True) if not _unfinished(path)]
    noted = ("", "failed") if (folder / TABLE_FILE).is_file() else ("",)  # the table lists failed runs
    states = Counter(state for path in run_folders(folder) if (state := _unfinished(path)) not in noted)
    others = [f"{count} run{'s' if count > 1 else ''} {state} and left out" for state, count in states.items()]
    return RecordedGrid(tuple(read_run(path, label) for path, label in finished), (*notes, *others))


def _unfinished(folder: Path) -> str:
    """The status of a run that has not finished; empty of one that has, and of old records, which do not say."""
    status = read_status(folder)
    return "" if status is None or status["status"] == "finished" else str(status["status"])


def run_folders(folder: Path) -> Iterator[Path]:
    """The folders of all runs, by row, column, seed and task."""
    found = (path for pattern in ("*/*/seed_*", "*/*/seed_*/task_*") for path in folder.glob(pattern) if is_run(path))
    yield from sorted(found, key=_in_order)


def _in_order(path: Path) -> tuple[object, ...]:
    """Sorts seed 10 after seed 9."""
    numbers = [int(number) for number in re.findall(r"(?:seed|task)_(\d+)", str(path))]
    labels = [part for part in path.parts if not re.fullmatch(r"(?:seed|task)_\d+", part)]
    return (*labels, *numbers)


def _folder_of(grid: Path, row: Mapping[str, Any]) -> Path:
    place = f"{folder_name(row['row'])}/{folder_name(row['column'])}/seed_{row['seed']}"
    place = place if row["task"] is None else f"{place}/task_{row['task']}"
    return grid / relative(place, grid / TABLE_FILE, DataError)


def _failures(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    counts = Counter((row["row"], row["column"], row["status"]) for row in rows)
    return tuple(
        f"{row} / {column}: {count} run{'s' if count > 1 else ''} {status} and left out"
        for (row, column, status), count in counts.items()
    )


def title_of(folder: Path) -> str:
    """The heading of the grid's table, or else the folder's name."""
    page = folder / "table.md"
    first = page.read_text(encoding="utf-8").partition("\n")[0] if page.is_file() else ""
    return first.removeprefix("# ") or folder.name


def _kept_rounds(folder: Path, done: Sequence[Mapping[str, Any]]) -> Iterator[RecordedRun]:
    """The runs of `rounds.parquet`: the columns of metrics.jsonl beside each run's row, column, seed and task."""
    path, title = folder / ROUNDS_FILE, title_of(folder)
    with reading(path, "as the rounds of a grid"):
        by_run: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for line in pq.read_table(path).to_pylist():
            key = tuple(line.pop(name) for name in KEYS)
            by_run.setdefault(key, []).append(line)
        rows_of = [_rows_of(by_run[tuple(run[name] for name in KEYS)]) for run in done]
        higher = {metric: _higher_is_better(metric, done, rows_of, path) for metric in {run["metric"] for run in done}}
        for run, rows in zip(done, rows_of, strict=True):
            task = "" if run["task"] is None else f" / task {run['task']}"
            yield from_rows(
                f"{path}, {run['row']} / {run['column']} / seed {run['seed']}{task}",
                (title, run["row"], run["column"]),
                run["seed"],
                run["task"],
                rows,
                _headline(run, rows, higher[run["metric"]]),
                _spans(rows),
                DataNote(run["data"], run["data_source"]),
            )


def _rows_of(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a run by round, with its own columns alone; those of the file are the columns of all runs."""
    rows = sorted(lines, key=lambda row: int(row["round"]))
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return [{name: row[name] for name in names} for row in rows]


def _headline(run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], higher: bool) -> Headline:
    reported = str(run["metric"])
    phases = dict.fromkeys(str(row["phase"]) for row in rows if row.get(reported) is not None)
    return Headline(reported.removeprefix("test_"), higher, _scale(run, rows) == 100, phases=tuple(phases))


def _scale(run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> int:
    """100 for a share, which is in percent in the table and a fraction in the records, else 1."""
    scores = {row["round"]: float(row[run["metric"]]) for row in rows if row.get(run["metric"]) is not None}
    pairs = [(run["last"], list(scores.values())[-1])] if scores else []
    pairs += [(run["best"], scores[run["best_round"]])] if run.get("best_round") in scores else []
    # zero is zero in either unit
    return 100 if any(score != 0 and math.isclose(shown, 100 * score, rel_tol=1e-6) for shown, score in pairs) else 1


def _higher_is_better(
    metric: str, done: Sequence[Mapping[str, Any]], rows_of: Sequence[Sequence[Mapping[str, Any]]], path: Path
) -> bool:
    """The direction of a registered metric; that of another, if the best score of all runs is an extreme."""
    known = Headline()
    registered = known.higher_is_better if metric == known.reported else higher_is_better(metric, ())
    if registered is not None:
        return registered
    highest = lowest = True
    for run, rows in zip(done, rows_of, strict=True):
        scores = [float(row[metric]) for row in rows if row.get(metric) is not None] if run["metric"] == metric else []
        if scores:
            best = run["best"] / _scale(run, rows)
            highest &= math.isclose(best, max(scores), rel_tol=1e-6)
            lowest &= math.isclose(best, min(scores), rel_tol=1e-6)
    if highest == lowest:
        raise DataError(
            f"{path}: does not tell whether higher values of '{metric}' are better; name the folder in which the grid "
            "was run"
        )
    return highest


def _spans(rows: Sequence[Mapping[str, Any]]) -> tuple[PhaseSpan, ...]:
    """The phases with evaluated rounds, each from the end of the previous one to its last evaluated round."""
    lasts = {str(row["phase"]): int(row["round"]) for row in rows}
    spans: list[PhaseSpan] = []
    for name, last in lasts.items():
        spans.append(PhaseSpan(name, "", spans[-1].last_round + 1 if spans else 1, last))
    return tuple(spans)
