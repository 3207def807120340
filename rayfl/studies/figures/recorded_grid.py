"""The records of the finished runs of a grid, from its folder or one file that keeps all.

Loads no PyTorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.rounds import PhaseSpan
from rayfl.errors import DataError
from rayfl.files import reading
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.figures.recorded_run import DataNote, RecordedRun, from_rows, read_run
from rayfl.runs.folder import METRICS_FILE
from rayfl.studies.grid.archive import PLACE, ROUNDS_FILE, GridArchive


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
    archive = GridArchive(folder)
    return archive.has_table or bool(archive.runs)


def read_grid(folder: Path) -> RecordedGrid:
    """Reads the finished runs of a grid.

    Raises:
        DataError: None has finished, or their rounds were not kept.
        ResourceError: The records are damaged, or of an earlier format.
    """
    archive = GridArchive(folder)
    done = [row for row in archive.table if row["status"] == "finished"]
    notes = _failures([row for row in archive.table if row["status"] != "finished"])
    runs = [archive.run_of(row) for row in done]
    if not archive.has_table:
        recorded = _grid_of(archive, dict.fromkeys(archive.runs), ())
    elif done and all(run.has_begun for run in runs):
        places = [GridPlace(archive.title, *(row[name] for name in PLACE)) for row in done]
        recorded = _grid_of(archive, dict(zip(runs, places, strict=True)), notes)
    elif archive.has_rounds:
        recorded = RecordedGrid(tuple(_kept_rounds(archive)), notes)
    elif done:
        raise DataError(
            f"'{folder}' has only the table of a grid, not its rounds: it has neither run folders with "
            f"{METRICS_FILE} nor {ROUNDS_FILE}; name the folder in which the grid was run"
        )
    else:
        recorded = RecordedGrid((), notes)
    if not recorded.runs:
        raise DataError(f"'{folder}': no run of the grid has finished; run rayfl grid again to continue")
    return recorded


def _grid_of(
    archive: GridArchive, places: Mapping[RunArchive, GridPlace | None], notes: tuple[str, ...]
) -> RecordedGrid:
    """The runs that have finished, at given places or those that they recorded."""
    noted = ("finished", "failed") if archive.has_table else ("finished",)  # the table lists failed runs
    states = Counter(state for run in archive.runs if (state := _state(run)) not in noted)
    others = [f"{count} run{'s' if count > 1 else ''} {state} and left out" for state, count in states.items()]
    finished = [read_run(run.path, place) for run, place in places.items() if _state(run) == "finished"]
    return RecordedGrid(tuple(finished), (*notes, *others))


def _state(run: RunArchive) -> str:
    return "finished" if run.status is None else str(run.status["status"])  # `read_run` says what is missing


def _failures(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    counts = Counter((row["row"], row["column"], row["status"]) for row in rows)
    return tuple(
        f"{row} / {column}: {count} run{'s' if count > 1 else ''} {status} and left out"
        for (row, column, status), count in counts.items()
    )


def _kept_rounds(archive: GridArchive) -> Iterator[RecordedRun]:
    path = archive.path / ROUNDS_FILE
    with reading(path, "as the rounds of a grid"):
        for run, rows, headline in archive.rounds():
            place = GridPlace(archive.title, *(run[name] for name in PLACE))
            yield from_rows(
                f"{path}, {place}",
                place,
                rows,
                Headline.from_record(headline),
                _spans(rows),
                DataNote(run["data"], run["data_source"]),
            )


def _spans(rows: Sequence[Mapping[str, Any]]) -> tuple[PhaseSpan, ...]:
    """The phases with evaluated rounds, each from the end of the previous one to its last evaluated round."""
    lasts = {str(row["phase"]): int(row["round"]) for row in rows}
    spans: list[PhaseSpan] = []
    for name, last in lasts.items():
        spans.append(PhaseSpan(name, "", spans[-1].last_round + 1 if spans else 1, last))
    return tuple(spans)
