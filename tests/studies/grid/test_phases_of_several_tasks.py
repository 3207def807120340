"""A grid of scenarios with different tasks in their phases: its figures are those of the last task."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rayfl.cli.grid import main
from tests.engine.phase_tasks import HERE

SCENARIO = f"""
model = "tests.algorithms.scene:TanhNet"
data = {{ name = "tests.algorithms.scene:people" }}
[[phases]]
name = "pretrain"
task = "{HERE}:Rolled"
rounds = 2
cohort = 3
[[phases]]
name = "finetune"
rounds = 2
cohort = 3
"""
GRID = """
scenario = "own.toml"
seeds = [0]
columns = { all = {} }
[rows]
none = { phases.pretrain.rounds = 0 }
rolled = {}
smoothed = { phases.finetune.task = { name = "classification", label_smoothing = 0.1 } }
"""


def test_rows_may_differ_in_what_a_phase_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.toml").write_text(SCENARIO)
    (tmp_path / "own.grid.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    assert main(["own.grid.toml", "--backend", "inline"]) == 0
    runs = {run["row"]: run for run in pq.read_table(tmp_path / "runs" / "own" / "table.parquet").to_pylist()}
    assert {run["metric"] for run in runs.values()} == {"test_accuracy"}
    assert {row: run["rounds"] for row, run in runs.items()} == {"none": 2, "rolled": 4, "smoothed": 4}
    assert {run["best_round"] > 2 for row, run in runs.items() if row != "none"} == {True}
    assert len({run["test_loss"] for run in runs.values()}) == 3
