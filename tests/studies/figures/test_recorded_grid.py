"""The runs of a grid: in their own folders, or of a grid of which only the rounds were kept, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.engine.plan.headline import Headline
from rayfl.runs.archive import EarlierFormatError, GridPlace
from rayfl.studies.figures.groups import read
from rayfl.studies.grid.place import folder_name
from tests.studies.figures.recorded_runs import write_run

SHARED = {"row": "FedAvg", "column": "FEMNIST"}


def kept(folder: Path, headline: Headline, runs: Sequence[Mapping[int, float]]) -> Path:
    """Writes a grid of which only the rounds were kept.

    Args:
        folder: Its folder.
        headline: The metric that ranks rounds.
        runs: The scores of each seed, by round.
    """
    rows, table = [], []
    for seed, scores in enumerate(runs):
        key = SHARED | {"seed": seed, "task": None}
        shared = key | {"headline": asdict(headline), "phase": "p"}
        rows += [shared | {"round": number, headline.reported: score} for number, score in scores.items()]
        table.append(key | {"status": "finished", "data": "femnist", "data_source": "files"})
    pq.write_table(pa.Table.from_pylist(rows), folder / "rounds.parquet")
    pq.write_table(pa.Table.from_pylist(table), folder / "table.parquet")
    return folder


def test_every_seed_and_task_of_kept_rounds_is_a_run_of_its_own(tmp_path: Path) -> None:
    keys = [SHARED | {"seed": seed, "task": task} for seed in (0, 1) for task in (0, 1, 2)]
    scores = {(key["seed"], key["task"]): 0.1 * place for place, key in enumerate(keys, 1)}
    shared = {"headline": asdict(Headline()), "phase": "p", "round": 1}
    rows = [key | shared | {"test_accuracy": scores[key["seed"], key["task"]]} for key in keys]
    table = [key | {"status": "finished", "data": "femnist", "data_source": "files"} for key in keys]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rounds.parquet")
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "table.parquet")
    (group,) = read(tmp_path).groups
    assert {(run.seed, run.task): run.columns["test_accuracy"].tolist() for run in group.runs} == {
        key: [score] for key, score in scores.items()
    }


@pytest.mark.parametrize(
    "headline",
    [
        Headline(phases=("p",)),
        Headline("unheard_of", True, is_share=False),
        Headline("loss", False, False, "own"),
    ],
)
def test_the_headline_of_kept_rounds_is_the_one_that_the_runs_recorded(tmp_path: Path, headline: Headline) -> None:
    kept(tmp_path, headline, [{1: 2.0, 2: 3.0, 3: 0.0}, {1: 0.0}])
    assert [run.headline for run in read(tmp_path).runs] == [headline, headline]


def test_rounds_without_headlines_are_of_an_earlier_format(tmp_path: Path) -> None:
    kept(tmp_path, Headline(), [{1: 0.3}])
    rounds = pq.read_table(tmp_path / "rounds.parquet")
    pq.write_table(rounds.drop_columns("headline"), tmp_path / "rounds.parquet")
    with pytest.raises(EarlierFormatError, match=r"rounds\.parquet': an earlier version of rayfl wrote it, without"):
        read(tmp_path)


def grid_of(folder: Path, states: Sequence[str], table: bool) -> list[str]:
    """The notes of a grid with a run in each of some states, and with its table or without."""
    rows: list[dict[str, Any]] = []
    for seed, state in enumerate(states):
        path = folder / "FedAvg" / folder_name("FEMNIST") / f"seed_{seed}"
        write_run(path, GridPlace("G", "FedAvg", "FEMNIST", seed), seed, {"test_accuracy": [0.1, 0.2, 0.3]})
        (path / "status.json").write_text(json.dumps({"status": state, "committed_rounds": 6}))
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


@pytest.mark.parametrize(("row", "column"), [("FedAvg", "w/o DP"), ("Fed: Avg", "c: d"), ("a / b", "c / seed 1")])
def test_a_run_of_a_grid_that_is_named_alone_has_the_place_that_it_recorded(
    tmp_path: Path, row: str, column: str
) -> None:
    run = write_run(tmp_path / "moved", GridPlace("My grid", row, column, 3, 1), 3, {"test_accuracy": [0.1, 0.2, 0.3]})
    (found,) = read(run).runs
    assert (found.grid, found.row, found.column, found.seed, found.task) == ("My grid", row, column, 3, 1)


def test_the_grids_own_labels_come_before_those_that_its_runs_recorded(tmp_path: Path) -> None:
    """A title or label may change as long as the folders' names do not."""
    grid_of(tmp_path, ["finished"], table=True)
    (tmp_path / "table.md").write_text("# A new title\n\nCaption\n", encoding="utf-8")
    assert {run.grid for run in read(tmp_path).runs} == {"A new title"}
