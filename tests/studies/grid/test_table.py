"""The table of a grid against values computed by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rayfl.runs.archive import GridPlace
from rayfl.studies.grid.results import CellRun, FailedRun, FinishedRun
from rayfl.studies.grid.schema import Grid
from rayfl.studies.grid.table import RUNS, GridTable
from tests.runs.evaluations import ACCURACY

GRID: dict[str, Any] = {
    "title": "Table | 1",
    "scenario": "any",
    "seeds": [0, 1, 2],
    "metrics": ["best", "mean_last_5"],
    "rows": {"FedAvg": {}, "Cyclic": {}},
    "columns": {"0.1": {}, "1.0": {}},
    "published": {"best": {"FedAvg": {"0.1": 81.69, "1.0": 86.58}}},
}


DATA = {
    "name": "femnist",
    "description": "FEMNIST, a fifth of its writers",
    "files": [{"path": "a", "sha256": "0123456789abcdef" * 4}, {"path": "b", "sha256": "f" * 64}],
}


def left_by_a_run(folder: Path, accuracies: Sequence[float | None], source: str = "files") -> Path:
    """Records of a run that was evaluated every tenth round; the lines are not in order."""
    folder.mkdir(parents=True)
    lines = [
        {
            "phase": "p",
            "round": 10 * number,
            "test_accuracy": accuracy,
            "test_loss": None if number == 2 else 1.5,
            "seconds": number,
        }
        for number, accuracy in enumerate(accuracies, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[::-1]))
    (folder / "environment.json").write_text(
        json.dumps({"place": None, "data": DATA | {"source": source}, "headline": asdict(ACCURACY)})
    )
    return folder


def run(
    tmp_path: Path, row: str, column: str, seed: int, *accuracies: float | None, source: str = "files"
) -> FinishedRun:
    folder = left_by_a_run(tmp_path / row / column / str(seed), accuracies, source)
    return FinishedRun.read(GridPlace("grid", row, column, seed), folder)


def test_a_runs_figures_are_those_of_its_evaluated_rounds(tmp_path: Path) -> None:
    read = run(tmp_path, "FedAvg", "0.1", 2, 0.1, 0.6, 0.2, 0.3, 0.6, 0.4, 0.5)
    assert read == FinishedRun(
        GridPlace("grid", "FedAvg", "0.1", 2),
        headline=ACCURACY,
        best=pytest.approx(60.0),  # type: ignore[arg-type]
        best_round=20,
        last=pytest.approx(50.0),  # type: ignore[arg-type]
        mean_last_5=pytest.approx((20 + 30 + 60 + 40 + 50) / 5),  # type: ignore[arg-type]
        rounds=70,
        test_loss=1.5,
        seconds=7,
        data="femnist",
        data_source="files",
        data_description="FEMNIST, a fifth of its writers",
        data_digests=("0123456789abcdef" * 4, "f" * 64),
    )
    assert read.data_found() == "files, sha256 0123456789abcdef…, sha256 ffffffffffffffff…"


def test_a_short_run_has_the_mean_of_what_there_is(tmp_path: Path) -> None:
    read = run(tmp_path, "FedAvg", "0.1", 0, 0.1, 0.3)
    assert read.mean_last_5 == pytest.approx(20.0)
    assert read.test_loss is None


def test_a_cell_is_mean_and_sample_deviation_over_seeds_beside_what_is_published(tmp_path: Path) -> None:
    runs = [run(tmp_path, "FedAvg", "0.1", seed, 0.5, accuracy) for seed, accuracy in enumerate((0.6, 0.7, 0.77))]
    runs += [run(tmp_path, "Cyclic", "0.1", 0, 0.8), run(tmp_path, "Cyclic", "1.0", 0, 0.8)]
    runs += [run(tmp_path, "Cyclic", "1.0", 1, 0.9)]
    table = GridTable(Grid.model_validate(GRID), runs)
    # 60, 70, 77: the mean is 69, the squares sum to 81 + 1 + 64 = 146, and the root of 146 / 2 is 8.544
    assert table.cell("best", "FedAvg", "0.1") == "69.00 ± 8.54 (81.69)"
    # 55, 60, 63.5: the mean is 59.5, the squares sum to 20.25 + 0.25 + 16 = 36.5, and the root of 36.5 / 2 is 4.272
    assert table.cell("mean_last_5", "FedAvg", "0.1") == "59.50 ± 4.27"
    assert table.cell("best", "FedAvg", "1.0") == "not run (86.58)"
    assert table.cell("best", "Cyclic", "0.1") == "80.00, 1 of 3 seeds"
    # 80, 90: the squares sum to 50
    assert table.cell("best", "Cyclic", "1.0") == "85.00 ± 7.07, 2 of 3 seeds"


def test_the_round_of_the_best_score_is_a_whole_number_beside_the_published_one(tmp_path: Path) -> None:
    published = {"best": {"FedAvg": {"0.1": 81.69}}, "best_round": {"FedAvg": {"0.1": 919, "1.0": [600, 12.5]}}}
    grid = Grid.model_validate(GRID | {"metrics": ["best", "best_round"], "published": published})
    # rounds 20, 10 and 40: the mean is 23.33, the squares sum to 466.67, and the root of half of that is 15.28
    shares = [(0.1, 0.3), (0.3, 0.1), (0.1, 0.1, 0.2, 0.3)]
    table = GridTable(grid, [run(tmp_path, "FedAvg", "0.1", seed, *found) for seed, found in enumerate(shares)])
    assert table.cell("best_round", "FedAvg", "0.1") == "23 ± 15 (919)"
    assert table.cell("best_round", "FedAvg", "1.0") == "not run (600 ± 12)"
    assert "First evaluated round with the best test accuracy; mean ± standard deviation" in table.markdown()
    table.write(tmp_path)
    rows = pq.read_table(tmp_path / "table.parquet").to_pylist()
    assert [(row["best_round"], row["published_best_round"]) for row in rows] == [(20, 919), (10, 919), (40, 919)]


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    table = GridTable(Grid.model_validate(GRID | {"seeds": [4]}), [run(tmp_path, "Cyclic", "0.1", 4, 0.8)])
    assert table.cell("best", "Cyclic", "0.1") == "80.00"
    assert "best evaluated round; seed 4; published figures in brackets" in table.markdown()


def test_the_markdown_has_a_table_for_every_metric_and_all_runs(tmp_path: Path) -> None:
    runs = [run(tmp_path, "FedAvg", "0.1", seed, 0.5, accuracy) for seed, accuracy in enumerate((0.6, 0.7, 0.77))]
    folder = tmp_path / "grid"
    folder.mkdir()
    GridTable(Grid.model_validate(GRID), runs).write(folder)
    lines = (folder / "table.md").read_text().splitlines()
    assert lines[0] == "# Table | 1"
    assert "| FedAvg | 69.00 ± 8.54 (81.69) | not run (86.58) |" in lines
    assert "| FedAvg | 59.50 ± 4.27 | not run |" in lines
    assert "| FedAvg | 0.1 | 2 | 77.00 | 20 | 63.50 | 77.00 | 20 | 2.0 s |" in lines
    assert "Data: femnist, from files. FEMNIST, a fifth of its writers." in lines
    assert not [line for line in lines if line.startswith("Not the grid")]


def test_the_parquet_file_has_a_row_for_every_run(tmp_path: Path) -> None:
    runs = [run(tmp_path, "FedAvg", "0.1", 0, 0.5, 0.25), run(tmp_path, "Cyclic", "1.0", 1, 0.75)]
    folder = tmp_path / "grid"
    folder.mkdir()
    GridTable(Grid.model_validate(GRID), runs).write(folder)
    table = pq.read_table(folder / "table.parquet")
    assert table.schema == RUNS
    first, second = table.to_pylist()
    assert first == {
        "row": "FedAvg",
        "column": "0.1",
        "seed": 0,
        "task": None,
        "status": "finished",
        "metric": "test_accuracy",
        "reason": None,
        "best": 50.0,
        "best_round": 10,
        "last": 25.0,
        "mean_last_5": 37.5,
        "rounds": 20,
        "test_loss": None,
        "seconds": 2.0,
        "data": "femnist",
        "data_source": "files",
        "published_best": 81.69,
        "published_best_round": None,
        "published_last": None,
        "published_mean_last_5": None,
    }
    assert (second["row"], second["best"], second["published_best"]) == ("Cyclic", 75.0, None)


def test_failed_and_diverged_runs_are_told_from_those_that_were_not_run(tmp_path: Path) -> None:
    why = {"failed": "host 0 died", "diverged": "client 3: the loss is nan | step 2"}
    runs: list[CellRun] = [run(tmp_path, "FedAvg", "0.1", 0, 0.5)]
    runs += [FailedRun(GridPlace("grid", "FedAvg", "0.1", seed), "diverged", why["diverged"]) for seed in (1, 2)]
    runs += [FailedRun(GridPlace("grid", "FedAvg", "1.0", seed), "failed", why["failed"]) for seed in (0, 1, 2)]
    runs += [FailedRun(GridPlace("grid", "Cyclic", "0.1", 0), "diverged", why["diverged"])]
    runs += [FailedRun(GridPlace("grid", "Cyclic", "1.0", 0), "failed", why["failed"])]
    runs += [FailedRun(GridPlace("grid", "Cyclic", "1.0", 1), "diverged", why["diverged"])]
    table = GridTable(Grid.model_validate(GRID), runs)
    assert table.cell("best", "FedAvg", "0.1") == "50.00, 1 of 3 seeds, 2 diverged (81.69)"
    assert table.cell("best", "FedAvg", "1.0") == "failed (86.58)"
    assert table.cell("best", "Cyclic", "0.1") == "diverged, 1 of 3 seeds"
    assert table.cell("best", "Cyclic", "1.0") == "1 failed, 1 diverged"

    assert "| Cyclic | 1.0 | 1 | diverged | client 3: the loss is nan \\| step 2 |" in table.markdown()
    console = Console(file=StringIO(), width=120)
    table.show(console)
    assert isinstance(console.file, StringIO)
    assert "host 0 died" in console.file.getvalue()

    table.write(tmp_path)
    rows = pq.read_table(tmp_path / "table.parquet").to_pylist()
    statuses = ["finished", *["diverged"] * 2, *["failed"] * 3, "diverged", "failed", "diverged"]
    assert [row["status"] for row in rows] == statuses
    assert (rows[3]["best"], rows[3]["reason"]) == (None, "host 0 died")


def test_an_undefined_score_is_left_out_and_has_no_best_round(tmp_path: Path) -> None:
    runs = [run(tmp_path, "FedAvg", "0.1", 0, 0.5, 0.25), run(tmp_path, "FedAvg", "0.1", 2, 0.25, 0.5)]
    runs += [run(tmp_path, row, "0.1", 1, None, None) for row in ("FedAvg", "Cyclic")]
    table = GridTable(Grid.model_validate(GRID | {"metrics": ["best", "best_round"]}), runs)
    assert table.cell("best", "FedAvg", "0.1") == "50.00 ± 0.00, 2 of 3 seeds (81.69)"
    assert table.cell("best_round", "FedAvg", "0.1").startswith("15 ± 7, 2 of 3 seeds")
    assert table.cell("last", "FedAvg", "0.1") == "37.50 ± 17.68, 2 of 3 seeds"
    assert table.cell("best", "Cyclic", "0.1") == "undefined"
    assert table.cell("best", "Cyclic", "1.0") == "not run"


def test_no_run_at_all_makes_a_table_too(tmp_path: Path) -> None:
    GridTable(Grid.model_validate(GRID), []).write(tmp_path)
    assert "| Cyclic | not run | not run |" in (tmp_path / "table.md").read_text()
    assert pq.read_table(tmp_path / "table.parquet").num_rows == 0


def test_generated_data_is_one_plain_line_below_the_tables_however_the_runs_describe_it(tmp_path: Path) -> None:
    runs = [run(tmp_path, "FedAvg", "0.1", seed, 0.5, source="generated") for seed in range(3)]
    runs = [replace(of_seed, data_description=f"writers of seed {of_seed.place.seed}") for of_seed in runs]
    elsewhere = GridPlace("grid", "FedAvg", "1.0", 0)
    runs += [replace(runs[0], place=elsewhere, data="cifar10", data_description="digits in colour")]
    table = GridTable(Grid.model_validate(GRID), runs)
    line = "Generated data, not real data: femnist, cifar10. Each run's environment.json describes it."
    assert [text for text in table.markdown().splitlines() if "enerated" in text] == [line]
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system="standard")
    table.show(console)
    assert isinstance(console.file, StringIO)
    said = console.file.getvalue().splitlines()
    assert [text for text in said if "enerated" in text] == [line]  # without codes for colour or bold
    assert any("50.00 ± 0.00" in text for text in said)


def test_published_numbers_do_not_stand_beside_generated_data(tmp_path: Path) -> None:
    generated = run(tmp_path, "FedAvg", "0.1", 0, 0.5, source="generated")
    table = GridTable(Grid.model_validate(GRID), [generated])
    assert table.cell("best", "FedAvg", "0.1") == "50.00, 1 of 3 seeds"
    assert table.cell("best", "FedAvg", "1.0") == "not run"
    assert "in brackets" not in table.markdown()
    real = run(tmp_path, "Cyclic", "0.1", 0, 0.5)
    assert GridTable(Grid.model_validate(GRID), [generated, real]).cell("best", "FedAvg", "1.0") == "not run (86.58)"
    table.write(tmp_path)
    assert pq.read_table(tmp_path / "table.parquet")["published_best"].to_pylist() == [None]


def test_the_note_and_what_was_changed_stand_under_the_tables(tmp_path: Path) -> None:
    grid = Grid.model_validate(GRID | {"note": "The paper does not say of which round."})
    changes = ["--quick", "phases.federated.until=100"]
    lines = GridTable(grid, [run(tmp_path, "FedAvg", "0.1", 0, 0.5)], changes).markdown().splitlines()
    note = lines.index("The paper does not say of which round.")
    assert lines[note + 2] == "**Not the grid as shipped: --quick, phases.federated.until=100.**"
    assert lines[note + 4].startswith("Data: ")
