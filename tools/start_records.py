"""python -m tools.start_records GRID FOLDER: writes the measurements of a grid of starting points to two small files.

GRID is the folder of a grid. `rounds.parquet` has a row for each run and evaluated round, with the run's headline
metric, `pretraining.parquet` one for each evaluated round of every start, with the columns of `phases.N.report`.
Unfinished runs are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rayfl.runs.archive import RunArchive
from rayfl.studies.grid.archive import PLACE, STARTS, GridArchive

LEFT_OUT = ("seconds", "bytes", "transfers")
"""Prefixes of columns that are not about models."""


def records(grid: GridArchive) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the rows of both files."""
    rounds: list[dict[str, Any]] = []
    pretraining: list[dict[str, Any]] = []
    known: set[tuple[str, str, int]] = set()
    for row in grid.table:
        if row["status"] != "finished":
            continue
        run, of_start = grid.run_of(row), (row["row"], row["column"], row["seed"])
        key = {name: row[name] for name in PLACE} | {"headline": asdict(run.headline)}
        rounds += [key | line for line in _lines(run)]
        start = run.environment["start"]
        if start is not None and of_start not in known:
            known.add(of_start)
            key = {name: row[name] for name in PLACE if name != "task"}
            # by name, because the grid may have been moved
            before = RunArchive(grid.path / STARTS / Path(start["path"]).name)
            pretraining += [key | line for line in _lines(before)]
    return rounds, pretraining


def _lines(run: RunArchive) -> Iterator[dict[str, Any]]:
    for row in run.rows:
        yield {name: value for name, value in row.items() if not name.startswith(LEFT_OUT)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path, metavar="GRID", help="the folder of a grid")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the files, created if necessary")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("rounds", "pretraining"), records(GridArchive(options.grid)), strict=True):
        if rows:
            columns = dict.fromkeys(column for row in rows for column in row)
            table = pa.table({column: [row.get(column) for row in rows] for column in columns})
            pq.write_table(table, options.folder / f"{name}.parquet", compression="zstd")
        print(f"{name}: {len(rows)} rows")


if __name__ == "__main__":
    main()
