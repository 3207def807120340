from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread

from tools.draw_starts import differences, main

ACCURACY = "test_accuracy_pooled_mean"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    rows = [
        {"row": row, "column": "c", "seed": seed, "task": task, "round": round, ACCURACY: better + rng.normal() / 100}
        for row, better in (("FedAvg", 0.5), ("CoPreFL", 0.6), ("Lacking", 0.6))
        for seed in range(3)
        for task in range(4)
        for round in (1, 20)
        if row != "Lacking" or task == 0
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rounds.parquet")
    return tmp_path


def test_rows_that_have_all_runs_are_compared_in_every_round(records: Path) -> None:
    found = differences(records, ACCURACY, (1, 20), "FedAvg", 0.0)
    assert list(found) == ["CoPreFL"]
    assert list(found["CoPreFL"]) == [1, 20]
    for estimate in found["CoPreFL"].values():
        assert abs(estimate.mean - 10) < estimate.margin < 3


def test_the_picture_is_drawn_and_what_is_missing_is_named(records: Path) -> None:
    picture = records / "starts.png"
    given = [str(records), "--figure", ACCURACY, "--round", "1", "--round", "20", "--out", str(picture)]
    main([*given, "--reference", "FedAvg"])
    assert np.ptp(imread(picture)[..., :3]) > 0.5
    with pytest.raises(SystemExit, match="there is no row 'None'; known: FedAvg, CoPreFL, Lacking"):
        main([*given, "--reference", "None"])
    with pytest.raises(SystemExit, match="no row has all runs of 'Lacking' with at least two tasks and two seeds"):
        main([*given, "--reference", "Lacking"])
    with pytest.raises(SystemExit, match="--round: no run was evaluated in round 5"):
        main([*given, "--reference", "FedAvg", "--round", "5"])
