"""Scores of single clients, as tables, lines and dots show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.engine.plan.headline import Headline
from rayfl.errors import ScenarioError
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.client_dots import dots_of
from rayfl.runs.figures.client_scores import ClientScores, line_of_clients, scores_by_set, scores_of, table_of_clients
from rayfl.runs.figures.style import RASTERISED, drawing
from tests.runs.evaluations import ACCURACY

ERROR = Headline("mae", higher_is_better=False, is_share=False)


def write_clients(folder: Path, scores: Sequence[float | None], owners: Sequence[str] = ()) -> Path:
    """A clients.parquet of two rounds; in the earlier one all scores are 0, and what clients reported comes last."""
    folder.mkdir(exist_ok=True)
    names = [{"owner": owner} for owner in owners] or [{}] * len(scores)
    rows: list[dict[str, Any]] = [
        {"round": number, "client": client, "set": of, "samples": 10 * client + 5, "loss": 1.0, "drift": None}
        | {"accuracy": score and score * (number == 4) * (0.5 if of == "validation" else 1)}
        | names[client]
        for number in (2, 4)
        for of in ("validation", "client_test")
        for client, score in enumerate(scores)
    ]
    rows += [{"round": 5, "client": 0, "set": None, "drift": 3.0}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clients.parquet", row_group_size=3)
    return folder


def of_values(values: Sequence[float], headline: Headline = ACCURACY) -> ClientScores:
    numbers = np.arange(len(values))
    return ClientScores(4, "test", numbers, None, numbers + 1, {headline.metric: np.array(values)}, headline)


def test_the_last_round_with_scores_is_read_and_clients_own_test_samples_come_first(tmp_path: Path) -> None:
    archive = RunArchive(write_clients(tmp_path, [0.5, None, 1.0]))
    own, validation = scores_by_set(archive, ACCURACY)
    assert [(scores.set, scores.round) for scores in (own, validation)] == [("client_test", 4), ("validation", 4)]
    assert [*own.scores] == ["loss", "accuracy"]
    np.testing.assert_equal(own.values, [0.5, np.nan, 1.0])
    np.testing.assert_equal(validation.values, [0.25, np.nan, 0.5])
    assert own.samples.tolist() == [5, 15, 25]
    assert own.ranking.tolist() == [2, 0]


def test_a_run_without_scores_of_clients_has_none(tmp_path: Path) -> None:
    assert scores_by_set(RunArchive(tmp_path), ACCURACY) == []
    reported = pa.Table.from_pylist([{"round": 1, "client": 0, "set": None, "samples": None, "drift": 1.0}])
    pq.write_table(reported, tmp_path / "clients.parquet")
    assert scores_by_set(RunArchive(tmp_path), ACCURACY) == []


def test_a_table_lists_clients_with_owner_samples_and_every_metric_from_the_best(tmp_path: Path) -> None:
    archive = RunArchive(write_clients(tmp_path, [0.5, None, 1.0], ["north", "[b]east", "south"]))
    table = table_of_clients(scores_by_set(archive, ACCURACY)[0])
    assert table.caption == "Clients by client test accuracy after round 4"
    assert table.header == ["", "client", "samples", "accuracy (%)", "loss"]
    assert table.rows == [
        ["south", "2", "25", "100.0", "1.000"],
        ["north", "0", "5", "50.0", "1.000"],
        ["[b]east", "1", "15", "–", "1.000"],
    ]


def test_of_many_clients_the_table_has_the_best_and_the_worst_and_counts_the_others() -> None:
    table = table_of_clients(of_values([*(np.arange(100) / 100), np.nan]))
    assert [row[0] for row in table.rows] == [f"client {client}" for client in (*range(99, 89, -1), *range(9, -1, -1))]
    assert table.caption == (
        "Clients by test accuracy after round 4: the 10 best and the 10 worst of 101; 80 between them are left out, "
        "and 1 of 101 without a score are left out"
    )
    few = table_of_clients(of_values([0.5, *[np.nan] * 30]))
    assert few.caption == "Clients by test accuracy after round 4: 30 of 31 without a score are left out"
    assert [row[0] for row in few.rows] == ["client 0"]


def test_of_errors_the_lowest_is_the_best() -> None:
    scores = of_values([3.0, 1.0, 2.0], ERROR)
    assert [row[0] for row in table_of_clients(scores).rows] == ["client 1", "client 2", "client 0"]
    assert line_of_clients(scores) == "test mae worst 3, median 2, best 1, of 3 clients"
    assert line_of_clients(of_values([np.nan], ERROR)) == ""


def test_a_metric_is_named_alone_or_with_a_set_of_samples(tmp_path: Path) -> None:
    found = scores_by_set(RunArchive(write_clients(tmp_path, [0.5])), ACCURACY)
    assert [(scores.set, name) for scores, name in (scores_of(found, of, "run") for of in ("", "validation_loss"))] == [
        ("client_test", "accuracy"),
        ("validation", "loss"),
    ]
    with pytest.raises(ScenarioError, match="'run' has no 'acuracy' of single clients; did you mean 'accuracy'"):
        scores_of(found, "acuracy", "run")
    with pytest.raises(ScenarioError, match=r"by: 'run' recorded no scores of single clients; .*per_client = true"):
        scores_of([], "", "run")


@pytest.mark.parametrize("number", [1, 5, RASTERISED + 1])
def test_every_client_is_a_dot_by_rank_and_by_size(number: int) -> None:
    values = np.random.default_rng(number).random(number)
    with drawing():
        ranked, by_size = dots_of(of_values([*values, np.nan])).axes
    (dots,), (sized,) = ranked.lines, by_size.lines
    np.testing.assert_allclose(np.asarray(dots.get_xydata()), np.c_[np.arange(number) + 1, 100 * np.sort(values)])
    np.testing.assert_allclose(np.asarray(sized.get_xydata()), np.c_[np.arange(number) + 1, 100 * values])
    assert (dots.get_linestyle(), dots.get_rasterized()) == ("None", number > RASTERISED)
    assert by_size.get_xlabel() == "Samples of the client"
