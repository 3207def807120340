"""Grids of which only the rounds were kept, in one file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rayfl.figures.groups import read

SHARED = {"row": "FedAvg", "column": "FEMNIST"}


def test_every_seed_and_task_of_kept_rounds_is_a_run_of_its_own(tmp_path: Path) -> None:
    keys = [SHARED | {"seed": seed, "task": task} for seed in (0, 1) for task in (0, 1, 2)]
    scores = {(key["seed"], key["task"]): 0.1 * place for place, key in enumerate(keys, 1)}
    rows = [key | {"phase": "p", "round": 1, "test_accuracy": scores[key["seed"], key["task"]]} for key in keys]
    table = [
        key
        | {"status": "finished", "metric": "test_accuracy", "data": "femnist", "data_source": "files"}
        | dict.fromkeys(("best", "last"), 100 * scores[key["seed"], key["task"]])
        for key in keys
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rounds.parquet")
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "table.parquet")
    (group,) = read(tmp_path).groups
    assert {(run.seed, run.task): run.columns["test_accuracy"].tolist() for run in group.runs} == {
        key: [score] for key, score in scores.items()
    }
