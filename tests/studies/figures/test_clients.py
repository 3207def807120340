"""Clients of several runs: their dots, and their scores compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayfl
from rayfl.__main__ import main
from rayfl.errors import ScenarioError
from rayfl.studies.figures.client_comparison import ClientComparison
from tests.studies.figures.recorded_runs import write_run

COLUMNS = {"test_accuracy": [0.1, 0.2, 0.3], "test_loss": [3.0, 2.0, 1.0]}


def scored(folder: Path, title: str, seed: int, scores: Mapping[str | int, float | None]) -> Path:
    """A run whose clients have these scores, by owner or by number, and losses of 1 less."""
    rows = [
        {"round": 6, "client": name if isinstance(name, int) else place, "set": "client_test", "samples": 10 + place}
        | {"accuracy": score, "loss": None if score is None else 1 - score}
        | ({} if isinstance(name, int) else {"owner": name})
        for place, (name, score) in enumerate(scores.items())
    ]
    pq.write_table(pa.Table.from_pylist(rows), write_run(folder, title, seed, COLUMNS) / "clients.parquet")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two seeds of a scenario, and a run of another that scored other clients, in another order."""
    return [
        scored(tmp_path / "a0", "FedAvg", 0, {"north": 0.2, "east": 0.4, "south": 0.6}),
        scored(tmp_path / "a1", "FedAvg", 1, {"east": 0.6, "north": 0.2}),
        scored(tmp_path / "b", "Cyclic", 0, {"west": 0.9, "south": 0.5, "north": 0.5, "east": 0.6}),
    ]


def of_clients(*folders: Path, metrics: Sequence[str] = (), reference: str | None = None) -> ClientComparison:
    return rayfl.compare(*folders, by="client", metrics=metrics, reference=reference)


def test_clients_are_paired_by_owner_and_averaged_over_seeds(runs: list[Path]) -> None:
    comparison = of_clients(*runs)
    (table,) = comparison.text_tables
    assert [*table.header] == ["", "FedAvg", "Cyclic", "difference to FedAvg"]
    assert table.rows == [
        ("north", "20.00", "50.00", "+30.00"),
        ("east", "50.00", "60.00", "+10.00"),
        ("south", "60.00", "50.00", "−10.00"),
    ]
    assert table.caption == (
        "Client test accuracy in %, last score of each client; from the largest gain to the largest loss"
    )
    assert comparison.notes == [
        (
            "Cyclic against FedAvg: 2 of 3 clients are better, 1 worse, 0 equal; "
            "median difference +10.00 percentage points."
        ),
        "Clients without a score in some run, which are left out: 1.",
        "Scores of a client are means over the runs of a row that scored it.",
        "Data: digits (generated, no real data).",
    ]
    rows = [row for row in comparison.table.to_pylist() if row["client"] == "north"]
    assert [(row["label"], row["score"], row["difference"]) for row in rows] == [
        ("FedAvg", pytest.approx(0.2), None),
        ("Cyclic", pytest.approx(0.5), pytest.approx(0.3)),
    ]


def test_one_client_is_better(tmp_path: Path) -> None:
    first = scored(tmp_path / "a", "FedAvg", 0, {"north": 0.2, "east": 0.4})
    comparison = of_clients(first, scored(tmp_path / "b", "Cyclic", 0, {"north": 0.3, "east": 0.2}))
    assert "Cyclic against FedAvg: 1 of 2 clients is better, 1 worse, 0 equal; " in comparison.notes[0]


def test_of_losses_the_largest_fall_is_the_largest_gain(runs: list[Path]) -> None:
    comparison = of_clients(*runs, metrics=["client_test_loss"])
    assert [row[0] for row in comparison.text_tables[0].rows] == ["north", "east", "south"]
    assert comparison.notes[0].startswith("Cyclic against FedAvg: 2 of 3 clients are better, 1 worse, 0 equal;")


def test_of_many_clients_those_with_the_largest_changes_are_listed(tmp_path: Path) -> None:
    gains = np.random.default_rng(0).permutation(41) / 100 - 0.2
    before = scored(tmp_path / "a", "FedAvg", 0, dict.fromkeys(range(41), 0.5))
    after = scored(tmp_path / "b", "Cyclic", 0, {client: 0.5 + float(gain) for client, gain in enumerate(gains)})
    (table,) = of_clients(before, after).text_tables
    order = np.argsort(-gains)
    assert [row[0] for row in table.rows] == [f"client {client}" for client in (*order[:10], *order[-10:])]
    assert table.caption.endswith("the first and last 10 of 41 clients")


def test_a_single_run_lists_its_clients_from_the_best(runs: list[Path]) -> None:
    comparison = of_clients(runs[0])
    assert comparison.text_tables[0].rows == [("south", "60.00"), ("east", "40.00"), ("north", "20.00")]
    assert comparison.table["difference"].to_pylist() == [None] * 3


def test_undefined_scores_and_other_clients_are_said(tmp_path: Path) -> None:
    one = scored(tmp_path / "a", "FedAvg", 0, {0: 0.5, 1: None})
    with pytest.raises(ScenarioError, match="no client has a score in each of 'FedAvg', 'Cyclic'"):
        of_clients(one, scored(tmp_path / "b", "Cyclic", 0, {1: 0.5, 2: 0.5}))


def test_every_group_has_a_dot_for_each_client_by_rank_and_by_size(runs: list[Path]) -> None:
    figure = rayfl.plot(*runs, by="client")
    ranked, by_size = figure.axes
    assert [np.asarray(line.get_ydata()).tolist() for line in ranked.lines] == [
        pytest.approx([20, 50, 60]),
        pytest.approx([50, 50, 60, 90]),
    ]
    assert np.asarray(by_size.lines[1].get_xydata()).tolist() == [[10, 90], [11, 50], [12, 50], [13, 60]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["FedAvg", "Cyclic"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--metric", "acuracy"], "has no 'acuracy' of single clients; did you mean 'accuracy'"),
        (["compare", "--at", "best"], "at: has no effect with by = 'client'"),
        (["compare", "--runs"], "list_runs: has no effect with by = 'client'"),
        (["plot", "--x", "bytes"], "x: has no effect with by = 'client'"),
    ],
)
def test_what_cannot_be_shown_by_client_is_an_error_of_one_line(
    arguments: list[str], message: str, runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = arguments
    assert main([command, str(runs[0]), "--by", "client", *options]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_clients_without_names_are_not_paired_across_splits(tmp_path: Path) -> None:
    """Partitions follow the seed, so client 3 of seed 0 has other data than client 3 of seed 1."""
    first, second = (scored(tmp_path / f"{n}", "FedAvg", n, {0: 0.2, 1: 0.4}) for n in (0, 1))
    with pytest.raises(ScenarioError, match="by: the data does not name its clients, and its split differs"):
        of_clients(first, second)
    other = scored(tmp_path / "c", "Cyclic", 0, {0: 0.3, 1: 0.5})
    assert of_clients(first, other).table.num_rows == 4
    for folder in (first, second):
        text = (folder / "scenario.toml").read_text()
        (folder / "scenario.toml").write_text(text.replace("[data]", "[data]\nseed = 7"))
    assert of_clients(first, second).table.num_rows == 2


def test_a_run_that_scored_no_clients_says_how_to(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_run(tmp_path / "c", "Other", 0, COLUMNS)
    assert main(["plot", str(runs[0]), str(other), "--by", "client", "--out", str(tmp_path / "x.png")]) == 1
    assert capsys.readouterr().err == (
        f"error: by: '{other}' recorded no scores of single clients; run it with evaluation.per_client = true\n"
    )


def test_equal_numbers_of_other_splits_are_other_clients(tmp_path: Path) -> None:
    one, other = (scored(tmp_path / name, name, 0, {0: 0.2, 1: 0.4}) for name in ("one", "other"))
    scenario = other / "scenario.toml"
    scenario.write_text(scenario.read_text().replace("[data]", '[data]\naugment = [{ name = "flip" }]'))
    assert of_clients(one, other).text_tables[0].rows[0][0] == "client 0"
    scenario.write_text(scenario.read_text().replace("[data]", '[data]\npartition = { name = "iid" }'))
    with pytest.raises(ScenarioError, match=r"its split differs between these runs \(by seed, task or other keys of"):
        of_clients(one, other)
