from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.meta_steps import main


def test_the_table_has_lengths_of_all_rounds_and_losses_of_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {
            "row": row,
            "seed": seed,
            "round": round,
            "meta_ratio": None if row == "FedAvg" else 0.5 + seed,
            "query_loss": 9.0 if round <= 10 else 2.0 + seed,
            "query_loss_variance": 0.25,
        }
        for row in ("FedAvg", "CoPreFL")
        for seed in (0, 1)
        for round in range(1, 31)
    ]
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "pretraining.parquet")
    main([str(tmp_path)])
    *_, only = capsys.readouterr().out.splitlines()
    assert only == "| CoPreFL | 1.00 | 0.50 to 1.50 | 2.500 | 0.250 |"
