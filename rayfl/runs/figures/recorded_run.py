"""The records of a run by column.

Loads no PyTorch.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rayfl.engine.columns import METRICS_MEANINGS
from rayfl.engine.plan.headline import Headline, is_part, statistic_over_clients
from rayfl.engine.plan.rounds import PhaseSpan, phase_spans
from rayfl.errors import DataError
from rayfl.files import reading
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.folder import METRICS_FILE
from rayfl.runs.status import STATUS, UNDER_WAY

NO_METRICS = ("phase", "round", "round_in_phase")
"""Columns of metrics.jsonl that identify a row."""

_NO_SCORES = {meaning.name for meaning in METRICS_MEANINGS}


class DataNote(NamedTuple):
    """The data of a run.

    Attributes:
        name: Of the data set.
        source: `files`, `generated` or `arrays`; empty in records kept in the repository that do not say.
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
        environment: Its environment.json; empty where only its rounds were kept.
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

    @cached_property
    def scores(self) -> list[str]:
        """The columns with losses and metrics of sets of samples, without those of single classes and over clients."""
        before = takewhile(lambda column: column != "train_loss", self.columns)
        whole = [column for column in before if not is_part(column, self.columns) and column not in _NO_SCORES]
        return [column for column in whole if not statistic_over_clients(column, self.columns)]

    @property
    def sets(self) -> list[str]:
        """The sets of samples that were scored, by the beginnings of their columns, longer names first."""
        losses = [column.removesuffix("_loss") for column in self.scores if column.endswith("_loss")]
        return sorted({*losses, "test", "validation", "client_test", "personalized"}, key=len, reverse=True)

    def values(self, column: str) -> np.ndarray:
        """float64 [n]: a column; of the headline metric, NaN in phases where it means something else."""
        values = self.columns[column]
        if column in (self.headline.column, self.headline.reported):
            return np.where(self.ranked, values, np.nan)
        return values


def read_run(folder: Path, place: GridPlace | None = None) -> RecordedRun:
    """Reads a run's folder.

    Args:
        folder: The run's; in a grid, or not.
        place: The place that its grid gives it now; by default the one that it recorded.

    Raises:
        DataError: The folder holds no run, the run has not finished, or it has no evaluated round.
        ResourceError: Its records are damaged, or of an earlier format.
    """
    archive = RunArchive(folder)
    if not archive.has_begun:
        raise DataError(f"'{folder}' is not the folder of a run: it has no {METRICS_FILE}; name a folder below runs/")
    archive.check_format()
    if archive.status is None:
        raise DataError(f"'{folder}' is not the folder of a run: it has no {STATUS}; name a folder below runs/")
    if (status := archive.status["status"]) != "finished":
        todo = (
            "wait until it has" if status in UNDER_WAY else f"resume it with: rayfl resume {shlex.quote(str(folder))}"
        )
        raise DataError(f"'{folder}': the run has not finished ({status}); {todo}")
    archive.check_complete()
    return read_so_far(archive, place)


def read_so_far(archive: RunArchive, place: GridPlace | None = None) -> RecordedRun:
    """Reads what a run has recorded up to now, whether it has finished or not; see `read_run`.

    Raises:
        DataError: The run has no evaluated round.
        ResourceError: Its records are damaged, or of an earlier format.
    """
    folder, scenario = archive.path, archive.tables
    with reading(folder / METRICS_FILE, "as the metrics of a run"):
        rows = sorted(archive.rows, key=lambda row: int(row["round"]))
    if not rows:
        raise DataError(f"'{folder}': {METRICS_FILE} has no evaluated round, so there is nothing to draw or compare")
    environment = archive.environment
    with reading(folder, "as the records of a finished run"):
        title = str(scenario.get("title") or scenario.get("name", "run"))
        return from_rows(
            str(folder),
            place or archive.place or GridPlace("", title, "", int(scenario["seed"])),
            rows,
            archive.headline,
            phases=phase_spans((phase["name"], phase["schedule"], phase["rounds"]) for phase in scenario["phases"]),
            data=DataNote(environment["data"]["name"], environment["data"]["source"]),
            scenario=scenario,
            environment=environment,
        )


def from_rows(
    where: str,
    place: GridPlace,
    rows: Sequence[Mapping[str, Any]],
    headline: Headline,
    phases: tuple[PhaseSpan, ...],
    data: DataNote,
    scenario: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
) -> RecordedRun:
    """Builds a run from its rows of metrics, sorted by round; for the rest see `RecordedRun`.

    Outside a grid, the row of the place is the run's title, and that of the grid and the column are empty.
    """
    # an earlier phase may have other metrics, and in every row these come before the training loss
    scores = (takewhile(lambda name: name != "train_loss", row) for row in rows if "train_loss" in row)
    names = dict.fromkeys(name for names in (*scores, *rows) for name in names if name not in NO_METRICS)
    columns = {name: np.array([_number(row.get(name)) for row in rows], np.float64) for name in names}
    return RecordedRun(
        where,
        place.row,
        place.column,
        place.title,
        place.seed,
        place.task,
        np.array([row["round"] for row in rows], np.int64),
        tuple(str(row.get("phase", "")) for row in rows),
        columns,
        headline,
        phases,
        data,
        scenario or {},
        environment or {},
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def client_updates(run: RecordedRun) -> np.ndarray | None:
    """Client updates up to each evaluated round.

    They are known only if cohorts have a fixed size and each of their clients trains once: in parallel phases and
    relays without [participation] and over-selection. Under `local.dp.max_epsilon`, clients whose budget is spent are
    left out, so the count is not known either.

    Returns:
        float64 [n]; None if the scenario does not tell.
    """
    phases = run.scenario.get("phases", [])
    clients = run.environment.get("data", {}).get("clients", run.scenario.get("data", {}).get("clients"))
    if not phases or run.scenario.get("participation"):
        return None
    per_round: list[np.ndarray] = []
    for phase in phases:
        sizes = _sizes(phase, clients)
        if sizes is None:
            return None
        per_round.append(sizes)
    total = np.cumsum(np.concatenate(per_round))
    if run.rounds[-1] > len(total):
        return None
    updates: np.ndarray = total[run.rounds - 1].astype(np.float64)
    return updates


def _sizes(phase: Mapping[str, Any], clients: int | None) -> np.ndarray | None:
    """The cohort sizes of a phase's rounds."""
    rounds, cohort = phase["rounds"], phase.get("cohort")
    if phase.get("local", {}).get("dp", {}).get("max_epsilon") is not None:
        return None
    if phase["schedule"] not in ("parallel", "relay") or phase.get("over_selection", 1) != 1:
        return None
    match cohort:
        case int(size) | {"by_size": int(size)}:
            return np.full(rounds, size)
        case float(share) if clients is not None:
            return np.full(rounds, max(1, math.floor(share * clients + 1e-9)))
        case {"explicit": lists}:
            return np.array([len(lists[place % len(lists)]) for place in range(rounds)], np.int64)
        case _:
            return None
