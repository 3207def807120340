from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rayfl.cli.grid import main as run_grid
from tools.start_records import main


@pytest.mark.slow
def test_records_have_every_round_of_the_runs_and_of_what_they_start_from(tmp_path: Path) -> None:
    chosen = ["--only", "CoPreFL, γ balanced, split by round, meta_lr 0.5/*", "--only", "Random/*"]
    given = ["--quick", "--backend", "inline", "--out", str(tmp_path), "data.source=generated"]
    starts = ["start.overrides.data.source=generated"]
    assert run_grid(["coprefl_fair_search", *chosen, *given, *starts, "--task", "1", "--task", "2"]) == 0
    (tmp_path / "coprefl_fair_search").rename(tmp_path / "moved")
    main([str(tmp_path / "moved"), str(tmp_path / "records")])
    rounds, before = (pq.read_table(tmp_path / "records" / f"{name}.parquet") for name in ("rounds", "pretraining"))
    keys = [tuple(row[name] for name in ("row", "seed", "task", "round")) for row in rounds.to_pylist()]
    rows = ("Random", "CoPreFL, γ balanced, split by round, meta_lr 0.5")
    assert keys == [(row, 0, task, round) for row in rows for task in (1, 2) for round in (1, 2)]
    assert "seconds" not in rounds.column_names
    assert {"test_accuracy", "test_accuracy_pooled_variance"} <= set(rounds.column_names)
    assert [(row["row"], row["round"]) for row in before.to_pylist()] == [(rows[1], 1), (rows[1], 2)]
    assert all(row["meta_norm"] > 0 and row["meta_ratio"] > 0 for row in before.to_pylist())
