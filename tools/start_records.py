"""python -m tools.start_records GRID FOLDER: writes the measurements of a grid of starting points to two small files.

GRID is the folder of a grid. `rounds.parquet` has a row for each run and evaluated round, `pretraining.parquet` one for
each evaluated round of every start, with the columns of `phases.N.report`. Unfinished runs are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rayfl.runs.folder import ENVIRONMENT_FILE, METRICS_FILE
from rayfl.studies.grid.schema import folder_name

KEYS = ("row", "column", "seed", "task")
LEFT_OUT = ("seconds", "bytes", "transfers")
"""Prefixes of columns that are not about models."""


def runs(grid: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yields row, column, seed and task of every finished run, with its folder."""
    for run in pq.read_table(grid / "table.parquet").to_pylist():
        if run["status"] == "finished":
            key = {name: run[name] for name in KEYS}
            folder = grid / folder_name(run["row"]) / folder_name(run["column"]) / f"seed_{run['seed']}"
            yield key, folder if run["task"] is None else folder / f"task_{run['task']}"


def records(grid: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the rows of both files.

    Args:
        grid: The folder of the grid.
    """
    rounds: list[dict[str, Any]] = []
    pretraining: list[dict[str, Any]] = []
    known: set[tuple[str, str, int]] = set()
    for key, folder in runs(grid):
        rounds += [key | line for line in _lines(folder)]
        start = json.loads((folder / ENVIRONMENT_FILE).read_text(encoding="utf-8")).get("start")
        of_start = key["row"], key["column"], key["seed"]
        if start is not None and of_start not in known:
            known.add(of_start)
            key = {name: key[name] for name in KEYS if name != "task"}
            # by name, because the grid may have been moved
            pretraining += [key | line for line in _lines(grid / "starts" / Path(start["path"]).name)]
    return rounds, pretraining


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for text in (folder / METRICS_FILE).read_text(encoding="utf-8").splitlines():
        yield {name: value for name, value in json.loads(text).items() if not name.startswith(LEFT_OUT)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path, metavar="GRID", help="the folder of a grid")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the files, created if necessary")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("rounds", "pretraining"), records(options.grid), strict=True):
        if rows:
            columns = dict.fromkeys(column for row in rows for column in row)
            table = pa.table({column: [row.get(column) for row in rows] for column in columns})
            pq.write_table(table, options.folder / f"{name}.parquet", compression="zstd")
        print(f"{name}: {len(rows)} rows")


if __name__ == "__main__":
    main()
