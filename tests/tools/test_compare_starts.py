from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.compare_starts import crossed, main

REPETITIONS = 1000


@pytest.mark.parametrize(
    ("of_tasks", "of_seeds", "rest", "seeds"),
    [(2, 0, 1, 5), (0, 2, 1, 3), (0.5, 0.3, 1, 3)],
)
def test_intervals_cover_the_true_difference_in_95_percent(
    of_tasks: float, of_seeds: float, rest: float, seeds: int
) -> None:
    rng, tasks, inside = np.random.default_rng(3), 10, 0
    for _ in range(REPETITIONS):
        drawn = of_tasks * rng.normal(size=(tasks, 1)) + of_seeds * rng.normal(size=seeds)
        found = crossed(1.5 + drawn + rest * rng.normal(size=(tasks, seeds)))
        inside += abs(found.mean - 1.5) <= found.margin
    assert 0.92 < inside / REPETITIONS < 0.99


@pytest.mark.slow
def test_intervals_over_tasks_of_shared_classes_cover_what_other_classes_would_give() -> None:
    rng, tasks, seeds, inside, narrow = np.random.default_rng(4), 10, 5, 0, 0
    for _ in range(REPETITIONS):
        classes = rng.normal(size=20)
        of_tasks = [rng.choice(classes, 5, replace=False).mean() for _ in range(tasks)]
        differences = np.array(of_tasks)[:, None] + 0.2 * rng.normal(size=seeds) + 0.3 * rng.normal(size=(tasks, seeds))
        inside += abs(differences.mean()) <= crossed(differences, overlap=0.25).margin
        narrow += abs(differences.mean()) <= crossed(differences).margin
    assert narrow / REPETITIONS < 0.88
    assert 0.92 < inside / REPETITIONS < 0.99


def test_the_margin_is_that_of_a_t_interval_where_only_seeds_differ() -> None:
    seeds = np.array([1.0, 2.0, 4.0, 4.5, 6.0])
    found = crossed(np.tile(seeds, (10, 1)))
    assert found.mean == 3.5
    assert found.margin == pytest.approx(2.7764451051977987 * np.std(seeds, ddof=1) / np.sqrt(5))
    assert crossed(np.full((2, 2), 0.5)) == (0.5, 0.0)


def test_rows_are_compared_by_task_and_seed_in_every_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"row": row, "column": "c", "seed": seed, "task": task, "round": round, "accuracy": accuracy + task / 10}
        for row, accuracy in (("FedAvg", 0.25), ("CoPreFL", 0.5), ("Lacking", 0.5))
        for seed in range(2)
        for task in range(2)
        for round in (1, 5)
        if row != "Lacking" or task == 0
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rounds.parquet")
    main([str(tmp_path), "--reference", "FedAvg", "--figure", "accuracy", "--round", "1", "--round", "5"])
    assert capsys.readouterr().out.splitlines()[3:] == [
        "| | round 1 | round 5 |",
        "|---|---|---|",
        "| FedAvg | 30.00 | 30.00 |",
        "| CoPreFL | 55.00, +25.00 [+25.00, +25.00] | 55.00, +25.00 [+25.00, +25.00] |",
        "| Lacking | 50.00 (2 of 4 runs) | 50.00 (2 of 4 runs) |",
    ]
    with pytest.raises(SystemExit, match="there is no row 'None'; known: FedAvg, CoPreFL, Lacking"):
        main([str(tmp_path), "--reference", "None", "--figure", "accuracy"])
