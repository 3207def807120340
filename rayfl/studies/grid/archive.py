"""`GridArchive`: the folder of a grid, with its tables and runs, or a copy that has the rounds of the runs alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rayfl.errors import DataError
from rayfl.files import reading, relative
from rayfl.runs.archive import EarlierFormatError, GridPlace, RunArchive
from rayfl.studies.grid.place import folder_of

STARTS = "starts"
"""The folder of scenarios that cells start from."""

PAGE_FILE = "table.md"
TABLE_FILE = "table.parquet"
ROUNDS_FILE = "rounds.parquet"
"""The rounds of all runs of a grid, without their folders; `tools.start_records` writes it."""

PLACE = ("row", "column", "seed", "task")
"""The columns of both tables that tell a run's place in the grid."""


class GridArchive:
    """The records of a grid; each is read when it is first asked for, and a damaged one is an error that names it.

    Args:
        path: The grid's folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def has_table(self) -> bool:
        """Whether the grid has made its tables."""
        return (self.path / TABLE_FILE).is_file()

    @property
    def has_rounds(self) -> bool:
        """Whether the rounds of all runs are in one file."""
        return (self.path / ROUNDS_FILE).is_file()

    @cached_property
    def page(self) -> str:
        """The page with the grid's tables, in Markdown; empty if they have not been made.

        Raises:
            DataError: The file is damaged.
        """
        path = self.path / PAGE_FILE
        if not path.is_file():
            return ""
        with reading(path, "as text"):
            return path.read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """The heading of the grid's tables, or else the folder's name."""
        return self.page.partition("\n")[0].removeprefix("# ") or self.path.name

    @cached_property
    def table(self) -> list[dict[str, Any]]:
        """The rows of table.parquet: the runs that have ended, in the order of the grid; none without the file.

        Raises:
            DataError: The file is damaged.
        """
        if not self.has_table:
            return []
        with reading(self.path / TABLE_FILE, "as the table of a grid"):
            rows: list[dict[str, Any]] = pq.read_table(self.path / TABLE_FILE).to_pylist()
            for row in rows:
                row["status"]  # what is no table of a grid has none
            return rows

    @cached_property
    def runs(self) -> list[RunArchive]:
        """The folders in which runs have begun, by row, column, seed and task."""
        runs = [RunArchive(path) for pattern in ("*/*/seed_*", "*/*/seed_*/task_*") for path in self.path.glob(pattern)]
        return sorted((run for run in runs if run.has_begun), key=lambda run: _in_order(run.path))

    def run_of(self, row: Mapping[str, Any]) -> RunArchive:
        """The run of a row of the table.

        Raises:
            DataError: The row names a place outside the folder.
        """
        with reading(self.path / TABLE_FILE, "as the table of a grid"):
            place = GridPlace("", *(row[name] for name in PLACE))
            return RunArchive(self.path / relative(folder_of(place), self.path / TABLE_FILE, DataError))

    def rounds(self) -> Iterator[tuple[Mapping[str, Any], list[dict[str, Any]], Mapping[str, Any]]]:
        """The finished runs in rounds.parquet, in the order of the table.

        Yields:
            The row of the table, the run's rows of metrics.jsonl by round, and its headline metric, as environment.json
            has it.

        Raises:
            DataError: The file is damaged.
            EarlierFormatError: It does not have the headline metrics.
        """
        path = self.path / ROUNDS_FILE
        with reading(path, "as the rounds of a grid"):
            lines = pq.read_table(path)
            if "headline" not in lines.column_names:
                raise EarlierFormatError(
                    f"'{path}': an earlier version of rayfl wrote it, without headline metrics; write it again from "
                    "the folder in which the grid was run: python -m tools.start_records"
                )
            by_place: dict[tuple[object, ...], list[dict[str, Any]]] = {}
            for line in lines.to_pylist():
                by_place.setdefault(tuple(line.pop(name) for name in PLACE), []).append(line)
            for row in self.table:
                if row["status"] == "finished":
                    rounds = sorted(by_place[tuple(row[name] for name in PLACE)], key=lambda one: one["round"])
                    headline = rounds[0]["headline"]
                    # the columns of the file are those of all runs
                    own = [
                        name
                        for name in rounds[0]
                        if name != "headline" and any(one[name] is not None for one in rounds)
                    ]
                    yield row, [{name: one[name] for name in own} for one in rounds], headline


def _in_order(path: Path) -> list[tuple[str, int]]:
    """Sorts seed 10 after seed 9."""
    parts = (part.rpartition("_") for part in path.parts)
    return [(before, int(last)) if before in ("seed", "task") and last.isdecimal() else (f"{before}_{last}", 0)
            for before, _, last in parts]  # fmt: skip
