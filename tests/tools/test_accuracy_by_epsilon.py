from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.accuracy_by_epsilon import main


def a_grid(folder: Path, runs: list[tuple[str, str, float | None]]) -> Path:
    folder.mkdir()
    rows = [
        {"row": row, "column": column, "status": "failed" if last is None else "finished", "last": last}
        for row, column, last in runs
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "table.parquet")
    return folder


def test_arms_of_several_grids_are_shown_by_epsilon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = a_grid(
        tmp_path / "private",
        [
            ("FedAvg, ε = 2", "FEMNIST", 50.0),
            ("FedAvg, ε = 2", "FEMNIST", 52.0),
            ("FedAvg, ε = 2", "FEMNIST", None),
            ("FedAvg, ε = 10", "FEMNIST", 60.0),
        ],
    )
    limits = a_grid(tmp_path / "limits", [("no privacy", "FEMNIST", 70.0), ("by column", "ε = 2", 40.0)])
    main([str(tmp_path / "both.png"), str(private), str(limits)])
    assert capsys.readouterr().out.splitlines() == [
        "| | ε = 2 | ε = 10 | no ε |",
        "|---|---|---|---|",
        "| FedAvg | 51.00 ± 1.41 | 60.00 |  |",
        "| no privacy |  |  | 70.00 |",
        "| by column | 40.00 |  |  |",
    ]
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_one_arm_is_not_taken_from_two_grids(tmp_path: Path) -> None:
    folders = [a_grid(tmp_path / name, [("FedAvg, ε = 2", "", 50.0)]) for name in ("a", "b")]
    with pytest.raises(SystemExit, match="'FedAvg' is in two grids with the same epsilon"):
        main([str(tmp_path / "both.png"), *map(str, folders)])
