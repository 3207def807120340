"""The records of a finished run, by column. Loads no PyTorch, and also reads records of older versions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rayfl.config.loading import read_toml
from rayfl.errors import DataError
from rayfl.fingerprint.recorded import read_environment
from rayfl.grid.schema import folder_name
from rayfl.planning.headline import Headline
from rayfl.planning.phase_span import PhaseSpan, phase_spans
from rayfl.reading import reading
from rayfl.report.folder import METRICS_FILE, SCENARIO_FILE
from rayfl.report.recorded_metrics import read_rows
from rayfl.report.status import read_status

NO_METRICS = ("phase", "round", "round_in_phase")
"""Columns of metrics.jsonl that identify a row."""

_PLACE = re.compile(r"(.*) / ((?:(?! / ).)+) / seed \d+(?: / task \d+)?")
"""The title of a cell of a grid, up to its row, and its column."""


class DataNote(NamedTuple):
    """The data of a run.

    Attributes:
        name: Of the data set.
        source: `files`, `generated` or `arrays`; empty where old records do not say.
    """

    name: str
    source: str

    @property
    def text(self) -> str:
        """A few words for the line below a picture or table."""
        sources = {
            "files": "real files",
            "generated": "generated, no real data",
            "arrays": "arrays of the program",
        }
        return f"{self.name} ({sources.get(self.source, 'source not recorded')})"


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """The records of one finished run.

    Attributes:
        where: Its folder, or the file that holds its rounds, for messages.
        row: Label of its row, of a run of a grid; else the title of its scenario, or its name.
        column: Label of its column; empty outside grids.
        grid: Title of its grid; empty outside grids.
        seed: Its seed.
        task: Which of the grid's tasks, None where it has none.
        rounds: int64 [n], the evaluated rounds, ascending.
        phase_names: The phase of each of them.
        columns: float64 [n] by column of metrics.jsonl; NaN where a value was not finite or not reported.
        headline: The metric that ranks its rounds.
        phases: In order; those whose rounds the records cannot tell are left out.
        data: Its data.
        scenario: Tables of its scenario.toml; empty where only its rounds were kept.
        environment: Its environment.json; empty where there is none.
    """

    where: str
    row: str
    column: str
    grid: str
    seed: int
    task: int | None
    rounds: np.ndarray
    phase_names: Sequence[str]
    columns: Mapping[str, np.ndarray]
    headline: Headline
    phases: tuple[PhaseSpan, ...]
    data: DataNote
    scenario: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int | None, int]:
        """Task and seed, by which it is paired with runs of other groups."""
        return self.task, self.seed

    @cached_property
    def ranked(self) -> np.ndarray:
        """bool [n]: whether the headline metric ranks a round; False in phases with another task."""
        return np.array([self.headline.ranks(name) for name in self.phase_names], bool)

    def values(self, column: str) -> np.ndarray:
        """float64 [n]: a column; of the headline metric, NaN in phases where it means something else."""
        found = self.columns[column]
        if column in (self.headline.column, self.headline.reported):
            return np.where(self.ranked, found, np.nan)
        return found


def is_run(folder: Path) -> bool:
    """Whether a run has begun in a folder."""
    return (folder / SCENARIO_FILE).is_file() or (folder / METRICS_FILE).is_file()


def read_run(folder: Path, labels: tuple[str, str, str] | None = None) -> RecordedRun:
    """Reads a run's folder.

    Args:
        folder: The run's; in a grid, or not.
        labels: Title of its grid, row and column, where they are known; else they come from the scenario's title.

    Raises:
        DataError: The folder holds no run, the run has not finished, or it has no evaluated round.
        ResourceError: Its records are damaged.
    """
    if not is_run(folder):
        raise DataError(f"'{folder}' is not the folder of a run: it has no {METRICS_FILE}; name a folder below runs/")
    status = read_status(folder)  # older records have none
    if status is not None and status["status"] != "finished":
        todo = "wait until it has" if status["status"] in ("running", "waiting") else f"go on: rayfl resume {folder}"
        raise DataError(f"'{folder}': the run has not finished ({status['status']}); {todo}")
    return read_so_far(folder, labels)


def read_so_far(folder: Path, labels: tuple[str, str, str] | None = None) -> RecordedRun:
    """Reads what a run has recorded up to now, whether it has finished or not; see `read_run`.

    Raises:
        DataError: The run has no evaluated round.
        ResourceError: Its records are damaged.
    """
    scenario = dict(read_toml(folder / SCENARIO_FILE))
    environment = read_environment(folder)
    with reading(folder / METRICS_FILE, "as the metrics of a run"):
        rows = sorted(read_rows(folder), key=lambda row: int(row["round"]))
    if not rows:
        raise DataError(f"'{folder}': {METRICS_FILE} has no evaluated round, so there is nothing to draw or compare")
    with reading(folder, "as the records of a finished run"):
        grid, row, column = labels or labels_of(folder, scenario)
        data = environment.get("data", {})
        return from_rows(
            str(folder),
            (grid, row, column),
            int(scenario.get("seed", 0)),
            task_of(folder),
            rows,
            Headline.from_record(environment["headline"]) if "headline" in environment else guessed_headline(rows),
            phases=phase_spans(
                (phase["name"], phase.get("schedule", "parallel"), phase["rounds"])
                for phase in scenario.get("phases", [])
            ),
            data=DataNote(data.get("name", scenario.get("data", {}).get("name", "data")), data.get("source", "")),
            scenario=scenario,
            environment=environment,
        )


def from_rows(
    where: str,
    labels: tuple[str, str, str],
    seed: int,
    task: int | None,
    rows: Sequence[Mapping[str, Any]],
    headline: Headline,
    phases: tuple[PhaseSpan, ...],
    data: DataNote,
    scenario: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
) -> RecordedRun:
    """Builds a run from its rows of metrics, sorted by round; for the rest see `RecordedRun`."""
    names = dict.fromkeys(name for row in rows for name in row if name not in NO_METRICS)
    columns = {name: np.array([_number(row.get(name)) for row in rows], np.float64) for name in names}
    grid, row, column = labels
    return RecordedRun(
        where,
        row,
        column,
        grid,
        seed,
        task,
        np.array([row["round"] for row in rows], np.int64),
        tuple(str(row.get("phase", "")) for row in rows),
        columns,
        headline,
        phases,
        data,
        scenario or {},
        environment or {},
    )


def guessed_headline(rows: Sequence[Mapping[str, Any]]) -> Headline:
    """The headline metric of old records, which do not name it: accuracy, else the loss."""
    if any("test_accuracy" in row for row in rows):
        return Headline()
    return Headline("loss", higher_is_better=False, is_share=False)


def labels_of(folder: Path, scenario: Mapping[str, Any]) -> tuple[str, str, str]:
    """Title of the grid, row and column of a run, from its title `GRID: ROW / COLUMN / seed 0`.

    Outside a grid, the row is the run's title, and the others are empty.
    """
    title = str(scenario.get("title") or scenario.get("name", "run"))
    if not (place := _PLACE.fullmatch(title)):
        return "", title, ""
    before, column = place.groups()
    named = {part.casefold() for part in folder.absolute().parts[-4:-2]}
    cuts = [cut.end() for cut in re.finditer(": ", before)]
    # a title and a label may both hold a colon; the folder is named after the label
    fitting = [cut for cut in cuts if folder_name(before[cut:]).casefold() in named]
    cut = (fitting or cuts[-1:] or [0])[0]
    return before[:cut].removesuffix(": "), before[cut:], column


def task_of(folder: Path) -> int | None:
    """The task in the name of a run's folder; None if it has none."""
    number = folder.name.removeprefix("task_")
    return int(number) if number != folder.name and number.isdecimal() else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
