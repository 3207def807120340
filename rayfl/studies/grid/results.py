"""Results of the runs of a grid: figures of those that finished, and reasons of those that failed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rayfl.config.registry import nearest
from rayfl.engine.plan.headline import Headline, unit_of
from rayfl.errors import ResourceError, ScenarioError
from rayfl.files import reading
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.status import readable_status

TAIL = 5
"""`mean_last_5` averages this many evaluated rounds: under skewed partitions, single rounds fluctuate."""


@dataclass(frozen=True)
class FinishedRun:
    """The figures of a finished run.

    Attributes:
        place: Its place in the grid.
        headline: The metric that ranks rounds; shares are in percent.
        best: The headline metric on the test samples in the best evaluated round, which is chosen on validation samples
            if there are any.
        best_round: The first round that reached it.
        last: The value after the last round.
        mean_last_5: The mean over the last `TAIL` evaluated rounds.
        rounds: The last evaluated round.
        test_loss: The test loss after the last round, None if it was not finite.
        seconds: Time from the first round to the last.
        data: Name of the data set.
        data_source: Origin of the data: `files`, `generated` or `arrays`.
        data_description: Description of the data.
        data_digests: SHA-256 of the files that were read, or else of all samples.
        data_of_files: Whether files were read.
        figures: Figures of the grid in the last evaluated round, by column, in the units of `unit_of`.
    """

    place: GridPlace
    headline: Headline
    best: float
    best_round: int
    last: float
    mean_last_5: float
    rounds: int
    test_loss: float | None
    seconds: float
    data: str
    data_source: str
    data_description: str
    data_digests: tuple[str, ...]
    data_of_files: bool = True
    figures: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, place: GridPlace, folder: Path, figures: Sequence[str] = ()) -> FinishedRun:
        """Reads the records in a run's folder.

        Raises:
            ScenarioError: The records have no column for a figure.
            ResourceError: The records are damaged.
        """
        with reading(folder, "as the records of a finished run", ResourceError):
            return cls._read(place, RunArchive(folder), figures)

    @classmethod
    def _read(cls, place: GridPlace, archive: RunArchive, figures: Sequence[str]) -> FinishedRun:
        archive.check_complete()
        lines = sorted(archive.rows, key=lambda line: line["round"])
        data, headline = archive.environment["data"], archive.headline
        digests = [file["sha256"] for file in data["files"]]
        ranked = [line for line in lines if headline.ranks(line["phase"])]
        # a callback may have ended the run before a phase that it ranks
        best = headline.best([_number(line[headline.column]) for line in ranked] or [math.nan])
        scores = [_number(line[headline.reported]) for line in ranked] or [math.nan]
        scale = 100 if headline.is_share else 1
        return cls(
            place,
            headline,
            best=scale * scores[best],
            best_round=(ranked or lines[-1:])[best]["round"],
            last=scale * scores[-1],
            mean_last_5=scale * statistics.fmean(scores[-TAIL:]),
            rounds=lines[-1]["round"],
            test_loss=lines[-1]["test_loss"],
            seconds=lines[-1]["seconds"],
            data=data["name"],
            data_source=data["source"],
            data_description=data["description"],
            data_digests=tuple(digests or [data["digest"]]),
            data_of_files=bool(digests),
            figures={name: _figure(lines[-1], name, headline, archive.path) for name in figures},
        )

    def value(self, name: str) -> float:
        """Returns a metric (`best`, `best_round`, `last`, `mean_last_5`) or a figure by name."""
        value: float = self.figures[name] if name in self.figures else getattr(self, name)
        return value

    def data_found(self) -> str:
        """Returns `files, sha256 0a1b2c3d4e5f6071…`: equal for equal data, in any folder."""
        return ", ".join([self.data_source, *(f"sha256 {digest[:16]}…" for digest in self.data_digests)])


@dataclass(frozen=True)
class FailedRun:
    """A run that failed.

    Attributes:
        place: Its place in the grid.
        status: `diverged` if training diverged, else `failed`.
        reason: The reason, in one line.
    """

    place: GridPlace
    status: Literal["failed", "diverged"]
    reason: str

    @classmethod
    def read(cls, place: GridPlace, folder: Path) -> FailedRun | None:
        """Reads the status in the folder of a run; returns None if the run did not fail, or if the file is damaged."""
        status = readable_status(folder)
        if status is None or status["status"] != "failed":
            return None
        kind: Literal["failed", "diverged"] = "diverged" if status.get("diverged") else "failed"
        return cls(place, kind, str(status.get("reason")))


def _figure(line: Mapping[str, Any], name: str, headline: Headline, folder: Path) -> float:
    if name not in line:
        raise ScenarioError(f"figures: no column '{name}' in '{folder / 'metrics.jsonl'}'; {nearest(name, line)}")
    return unit_of(name, headline).factor * _number(line[name])


def _number(value: float | None) -> float:
    """Records have null for values that were not finite."""
    return math.nan if value is None else value


CellRun = FinishedRun | FailedRun
