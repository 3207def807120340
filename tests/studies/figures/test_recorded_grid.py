"""The runs of a grid: in their own folders, or of a grid of which only the rounds were kept, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.engine.plan.headline import Headline
from rayfl.errors import DataError
from rayfl.studies.figures.groups import read
from rayfl.studies.figures.recorded_run import labels_of
from rayfl.studies.grid.schema import folder_name
from tests.studies.figures.recorded_runs import write_run

SHARED = {"row": "FedAvg", "column": "FEMNIST"}


def kept(
    folder: Path, metric: str, runs: Sequence[Mapping[int, float]], best: Sequence[int], share: bool = True
) -> Path:
    """Writes a grid of which only the rounds were kept.

    Args:
        folder: Its folder.
        metric: The column that ranks rounds.
        runs: The scores of each seed, by round.
        best: The best round of each seed.
        share: Whether the table has percent.
    """
    rows, table = [], []
    for seed, (scores, chosen) in enumerate(zip(runs, best, strict=True)):
        key = SHARED | {"seed": seed, "task": None}
        rows += [key | {"phase": "p", "round": number, metric: score} for number, score in scores.items()]
        shown = {number: (100 if share else 1) * score for number, score in scores.items()}
        of_best = {"best": shown[chosen], "best_round": chosen, "last": shown[max(shown)]}
        said = {"status": "finished", "metric": metric, "data": "femnist", "data_source": "files"}
        table.append(key | said | of_best)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rounds.parquet")
    pq.write_table(pa.Table.from_pylist(table), folder / "table.parquet")
    return folder


def headlines(folder: Path) -> set[Headline]:
    return {run.headline for run in read(folder).runs}


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


def test_a_best_round_chosen_on_other_samples_does_not_turn_the_metric_around(tmp_path: Path) -> None:
    kept(tmp_path, "test_accuracy", [{1: 0.3, 2: 0.5, 3: 0.8}], best=[2])
    assert headlines(tmp_path) == {Headline("accuracy", higher_is_better=True, is_share=True, phases=("p",))}


def test_lower_values_of_a_loss_and_of_a_registered_metric_are_better(tmp_path: Path) -> None:
    for metric in ("loss", "perplexity"):
        (tmp_path / metric).mkdir()
        kept(tmp_path / metric, f"test_{metric}", [{1: 9.0, 2: 7.0, 3: 8.0}], best=[3], share=False)
        assert headlines(tmp_path / metric) == {Headline(metric, False, is_share=False, phases=("p",))}


@pytest.mark.parametrize(("best", "higher"), [(3, True), (1, False)])
def test_the_direction_of_an_unregistered_metric_is_that_of_the_best_scores(
    tmp_path: Path, best: int, higher: bool
) -> None:
    seeds = [{1: 2.0, 2: 3.0, 3: 4.0}, {1: 1.0, 2: 5.0, 3: 6.0}, {3: 1.0}]
    kept(tmp_path, "test_unheard_of", seeds, best=[best, best, 3], share=False)
    assert headlines(tmp_path) == {Headline("unheard_of", higher, is_share=False, phases=("p",))}


@pytest.mark.parametrize("best", [[2, 3], [3, 1]])
def test_a_direction_that_the_records_do_not_tell_is_an_error(tmp_path: Path, best: list[int]) -> None:
    kept(tmp_path, "test_unheard_of", [{1: 2.0, 2: 3.0, 3: 4.0}] * 2, best=best, share=False)
    with pytest.raises(DataError, match="does not tell whether higher values of 'test_unheard_of' are better"):
        read(tmp_path)


def test_a_share_is_recognised_though_its_last_score_is_0(tmp_path: Path) -> None:
    kept(tmp_path, "test_accuracy", [{1: 0.3, 2: 0.5, 3: 0.0}], best=[2])
    assert {headline.is_share for headline in headlines(tmp_path)} == {True}


def grid_of(folder: Path, states: Sequence[str], table: bool) -> list[str]:
    """The notes of a grid with a run in each of some states, and with its table or without."""
    rows: list[dict[str, Any]] = []
    for seed, state in enumerate(states):
        path = folder / "FedAvg" / folder_name("FEMNIST") / f"seed_{seed}"
        write_run(path, f"G: FedAvg / FEMNIST / seed {seed}", seed, {"test_accuracy": [0.1, 0.2, 0.3]})
        (path / "status.json").write_text(json.dumps({"status": state}))
        if state in ("finished", "failed"):
            rows.append(SHARED | {"seed": seed, "task": None, "status": state})
    if table:
        pq.write_table(pa.Table.from_pylist(rows), folder / "table.parquet")
    recorded = read(folder)
    assert [run.seed for run in recorded.runs] == [0]
    return list(recorded.notes)


@pytest.mark.parametrize("table", [True, False])
def test_runs_that_have_not_finished_are_left_out_and_counted(tmp_path: Path, table: bool) -> None:
    states = ("finished", "interrupted", "lost", "lost", "failed", "running")
    notes = grid_of(tmp_path, states, table)
    failed = "FedAvg / FEMNIST: 1 run failed and left out" if table else "1 run failed and left out"
    assert sorted(notes) == sorted(
        [
            failed,
            "1 run interrupted and left out",
            "2 runs lost and left out",
            "1 run running and left out",
        ]
    )


@pytest.mark.parametrize(("row", "column"), [("FedAvg", "w/o DP"), ("w/o server", "plain"), ("Fed: Avg", "c: d")])
def test_the_title_of_a_run_tells_its_row_and_column(tmp_path: Path, row: str, column: str) -> None:
    folder = tmp_path / folder_name(row) / folder_name(column) / "seed_3"
    assert labels_of(folder, {"title": f"My grid: {row} / {column} / seed 3"}) == ("My grid", row, column)
