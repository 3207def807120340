"""table.parquet: a row for every run of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rayfl.durable import atomic_write
from rayfl.grid.entries import Entries
from rayfl.grid.results import CellRun, FinishedRun

METRICS = ("best", "last", "mean_last_5")
RUNS = pa.schema(
    [
        ("row", pa.string()),
        ("column", pa.string()),
        ("seed", pa.int64()),
        ("task", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("metric", pa.string()),
        ("best", pa.float64()),
        ("best_round", pa.int64()),
        ("last", pa.float64()),
        ("mean_last_5", pa.float64()),
        ("rounds", pa.int64()),
        ("test_loss", pa.float64()),
        ("seconds", pa.float64()),
        ("data", pa.string()),
        ("data_source", pa.string()),
        *((f"published_{metric}", pa.float64()) for metric in METRICS),
    ]
)
"""A row per run that finished, failed or diverged (`status`, `reason`): the headline metric, in percent if it is a
share, and test_loss after the last round; null if it did not finish. The figures of the grid follow under their names,
and published values (of a mean and deviation, the mean) as `published_<figure>`."""


def write_runs(runs: Sequence[CellRun], figures: Sequence[str], entries: Entries, path: Path) -> None:
    """Writes the columns of `RUNS` and of the figures.

    Args:
        runs: In the order of the rows.
        figures: Names of the grid's figures; those among `RUNS`, such as test_loss, get no second column.
        entries: Source of the published values.
        path: The file.
    """
    others = [name for name in figures if name not in RUNS.names]
    schema = RUNS
    for name in [*others, *(f"published_{figure}" for figure in figures)]:
        schema = schema.append(pa.field(name, pa.float64()))
    rows = [
        {"status": "finished"}
        | {name: value for name, value in vars(run).items() if name in RUNS.names}
        | ({"metric": run.headline.reported} | _some(run.figures, others) if isinstance(run, FinishedRun) else {})
        | {f"published_{name}": _mean(entries.published(name, run.row, run.column)) for name in (*METRICS, *figures)}
        for run in runs
    ]
    with atomic_write(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary)


def _some(figures: Mapping[str, float], names: Sequence[str]) -> dict[str, Any]:
    return {name: figures[name] for name in names}


def _mean(published: float | tuple[float, float] | None) -> float | None:
    return published[0] if isinstance(published, tuple) else published
