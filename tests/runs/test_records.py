from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from rayfl.engine.columns import CLIENTS, METRICS
from rayfl.engine.events import ClientScalars, ClientScore, RoundDone, Waiting
from rayfl.engine.totals import Traffic
from rayfl.errors import CheckpointError, RayflError, ResourceError
from rayfl.runs import client_records
from rayfl.runs import records as records_module
from rayfl.runs.archive import RunArchive
from rayfl.runs.records import Records
from tests.runs.evaluations import client_score, evaluated

NOW = datetime(2026, 2, 3, 4, 5, 6)


def done(round: int, phase: str = "federated", train_loss: float = 2.0) -> RoundDone:
    return RoundDone(
        phase,
        round,
        round,
        train_loss,
        10,
        100,
        Traffic(20 * round, 120 * round, 130 * round, 480 * round, 520 * round),
        0.5 * round,
    )


def scores(*accuracies: float) -> tuple[ClientScore, ...]:
    return tuple(client_score(client, 10 + client, 1.5, accuracy) for client, accuracy in enumerate(accuracies))


def test_the_folder_is_named_after_scenario_and_time_and_never_taken_twice(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with Records.create(tmp_path / "runs", "femnist_cyclic", NOW) as records:
            names.append(records.folder.name)
    first = "femnist_cyclic-20260203-040506"
    assert names == [first, f"{first}-2", f"{first}-3"]


def test_an_output_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "runs"
    with pytest.raises(ResourceError, match=r"cannot write to the output folder '.*file/runs': .*--out"):
        Records.create(out, "x", NOW)


def test_an_evaluation_is_joined_with_its_round_though_later_rounds_came_between(tmp_path: Path) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        for event in (done(1), done(2), done(3), evaluated("federated", 2, 1.25, 0.75, 100), done(4)):
            records.add(event)
        (line,) = (records.folder / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "phase": "federated",
        "round": 2,
        "round_in_phase": 2,
        "test_loss": 1.25,
        "test_accuracy": 0.75,
        "train_loss": 2.0,
        "seconds": 1.0,
        "bytes": 2000,
        "transfers": 40,
        "bytes_down": 960,
        "bytes_up": 1040,
    }


def test_a_line_is_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    records = Records.create(tmp_path, "x", NOW)
    try:
        records.add(done(1))
        records.add(evaluated("federated", 1, 1.0, 0.5, 100))
        assert (records.folder / "metrics.jsonl").read_bytes().endswith(b"}\n")
    finally:
        records.close()


def test_metrics_read_back_as_a_typed_table_sorted_by_round(tmp_path: Path) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        assert records.metrics_table().num_rows == 0
        for event in (
            done(1),
            done(2),
            evaluated("federated", 2, 1.0, 0.5, 9),
            evaluated("federated", 1, 2.0, 0.25, 9),
        ):
            records.add(event)
        table = records.metrics_table()
    assert all(table.schema.field(field.name).type == field.type for field in METRICS)
    assert table.schema.field("test_accuracy").type == pa.float64()
    assert table["round"].to_pylist() == [1, 2]
    assert table["test_accuracy"].to_pylist() == [0.25, 0.5]


def test_a_loss_that_is_not_finite_is_null_in_valid_json(tmp_path: Path) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        records.add(done(1, train_loss=math.inf))
        records.add(evaluated("federated", 1, math.nan, 0.5, 9))
        row = records.metrics_table().to_pylist()[0]
    assert row["test_loss"] is None
    assert row["train_loss"] is None
    assert row["test_accuracy"] == 0.5


def test_rounds_that_are_never_evaluated_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "ROUNDS_HELD", 8)
    with Records.create(tmp_path, "x", NOW) as records:
        for round in range(1, 1000):
            records.add(done(round))
            records.add(Waiting("federated", round, 60.0, ("client 1 on host 0",)))
        assert len(records._rounds) == 8
        records.add(evaluated("federated", 999, 1.0, 0.5, 9))
        assert records.metrics_table()["round"].to_pylist() == [999]


def test_client_scores_of_all_evaluated_rounds_are_in_one_parquet_file(tmp_path: Path) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        for round, accuracies in ((1, (0.1, 0.2)), (2, (0.3, 0.4))):
            records.add(done(round))
            records.add(evaluated("federated", round, 1.0, 0.5, 9, scores(*accuracies)))
        assert not (records.folder / "clients.parquet").exists()
    rows = pq.read_table(records.folder / "clients.parquet").to_pylist()
    assert [(row["round"], row["client"], row["samples"], row["accuracy"]) for row in rows] == [
        (1, 0, 10, 0.1),
        (1, 1, 11, 0.2),
        (2, 0, 10, 0.3),
        (2, 1, 11, 0.4),
    ]


def test_an_undefined_score_is_null_and_one_that_is_not_finite_is_not(tmp_path: Path) -> None:
    with Records.within(tmp_path / "run") as records:
        records.add(RoundDone("p", 1, 1, 2.0, 2, 2, Traffic(), 1.0))
        scores = [client_score(0, 1, 1.0, None), client_score(1, 9, float("nan"), 0.5)]
        records.add(evaluated("p", 1, 1.0, None, 10, tuple(scores)))
    assert json.loads((records.folder / "metrics.jsonl").read_text())["test_accuracy"] is None
    found = pq.read_table(records.folder / "clients.parquet")
    assert found["accuracy"].to_pylist() == [None, 0.5]
    assert [found["loss"].null_count, math.isnan(found["loss"][1].as_py())] == [0, True]


def test_the_latest_confusion_matrix_is_kept_also_by_a_run_that_is_lost(tmp_path: Path) -> None:
    records = Records.within(tmp_path)

    def add(number: int, confusion: tuple[tuple[int, ...], ...]) -> None:
        records.add(RoundDone("p", number, number, 1.0, 1, 1, Traffic(), 1.0))
        records.add(replace(evaluated("p", number, 1.0, 0.5, 4), confusion=confusion))

    add(1, ((1, 1), (0, 2)))
    assert RunArchive(tmp_path).confusion is None
    records.state()
    assert RunArchive(tmp_path).confusion == {"phase": "p", "round": 1, "samples": [[1, 1], [0, 2]]}
    add(2, ((2, 0), (0, 2)))
    records.close()
    assert RunArchive(tmp_path).confusion == {"phase": "p", "round": 2, "samples": [[2, 0], [0, 2]]}


def test_there_is_no_clients_file_where_no_scores_came(tmp_path: Path) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        records.add(done(1))
        records.add(evaluated("federated", 1, 1.0, 0.5, 9))
    assert {path.name for path in records.folder.iterdir()} == {"metrics.jsonl"}


def test_a_run_that_fails_keeps_the_scores_it_had(tmp_path: Path) -> None:
    def fail() -> None:
        with Records.create(tmp_path, "x", NOW) as records:
            records.add(done(1))
            records.add(evaluated("federated", 1, 1.0, 0.5, 9, scores(0.5)))
            raise RuntimeError("a client failed")

    with pytest.raises(RuntimeError, match="a client failed"):
        fail()
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {"metrics.jsonl", "clients.parquet"}
    assert pq.read_table(folder / "clients.parquet").num_rows == 1


def test_reported_scalars_are_columns_of_the_metrics_under_their_own_names(tmp_path: Path) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        records.add(done(1))
        records.add(evaluated("federated", 1, 1.0, 0.5, 100, macro_f1=0.25))
        records.add(replace(done(2), scalars={"drift": 3.0, "norm": math.inf}))
        records.add(evaluated("federated", 2, 1.0, 0.5, 100, macro_f1=0.5))
        lines = [json.loads(line) for line in (records.folder / "metrics.jsonl").read_text().splitlines()]
        table = records.metrics_table()
    assert (lines[1]["drift"], lines[1]["norm"], lines[1]["macro_f1"]) == (3.0, None, 0.5)
    fixed = [name for name in METRICS.names if name not in ("phase", "round", "round_in_phase")]
    scores = ["test_loss", "test_accuracy", "macro_f1"]
    assert table.schema.names == ["phase", "round", "round_in_phase", *scores, *fixed, "drift", "norm"]
    assert table["drift"].to_pylist() == [None, 3.0]
    assert table["macro_f1"].to_pylist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("reported", "scores"),
    [({"round": 1.0}, {}), ({"test_accuracy": 1.0}, {}), ({"drift": 1.0}, {"drift": 1.0})],
)
def test_a_scalar_with_the_name_of_another_column_is_rejected(
    reported: dict[str, float], scores: dict[str, float], tmp_path: Path
) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        records.add(replace(done(1), scalars=reported))
        name = next(iter(reported))
        with pytest.raises(
            RayflError, match=f"reported scalar '{name}': the records have a column of this name; choose another"
        ):
            records.add(evaluated("federated", 1, 1.0, 0.5, 100, (), **scores))


def test_reports_of_single_clients_have_their_own_columns_even_if_names_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_records, "ROWS_HELD", 2)
    with Records.create(tmp_path, "x", NOW) as records:
        records.add(done(1))
        records.add(evaluated("federated", 1, 1.0, 0.5, 9, scores(0.1, 0.2, 0.3)))
        reports = (ClientScalars(4, {"drift": 2.0}), ClientScalars(7, {"drift": 1.0, "epsilon": 0.5}))
        records.add(replace(done(2), client_scalars=reports))
        worst = client_score(0, 10, 1.5, 0.4, macro_f1=0.25)
        records.add(evaluated("federated", 2, 1.0, 0.5, 9, (worst,)))
    assert {path.name for path in records.folder.iterdir()} == {"metrics.jsonl", "clients.parquet"}
    table = pq.read_table(records.folder / "clients.parquet")
    assert table.schema.names == [*CLIENTS.names, "loss", "accuracy", "drift", "epsilon", "macro_f1"]
    columns = ("round", "client", "accuracy", "drift", "epsilon", "macro_f1")
    assert [tuple(row[column] for column in columns) for row in table.to_pylist()] == [
        (1, 0, 0.1, None, None, None),
        (1, 1, 0.2, None, None, None),
        (1, 2, 0.3, None, None, None),
        (2, 4, None, 2.0, None, None),
        (2, 7, None, 1.0, 0.5, None),
        (2, 0, 0.4, None, None, 0.25),
    ]


def test_a_client_scalar_with_the_name_of_a_column_is_rejected(tmp_path: Path) -> None:
    with Records.create(tmp_path, "x", NOW) as records:
        records.add(done(1))
        records.add(evaluated("federated", 1, 1.0, 0.5, 9, scores(0.1)))
        with pytest.raises(RayflError, match="reported scalar 'accuracy'"):
            records.add(replace(done(2), client_scalars=(ClientScalars(4, {"accuracy": 2.0}),)))


def test_views_into_one_vector_are_stored_as_models_of_their_own(tmp_path: Path) -> None:
    flat = torch.arange(24.0)
    state = {"conv.weight": flat[:16].view(2, 2, 2, 2).permute(0, 3, 1, 2), "conv.bias": flat[16:18], "all": flat}
    with Records.create(tmp_path, "x", NOW) as records:
        records.write_model(state)
    loaded = load_file(records.folder / "model.safetensors")
    assert set(loaded) == set(state)
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_scenario_and_environment_are_written_as_given(tmp_path: Path) -> None:
    facts = {"seed": 3, "versions": {"torch": "2.15.0"}, "files": [["a.parquet", "00ff"]]}
    with Records.create(tmp_path, "x", NOW) as records:
        records.write_scenario('title = "Größe"\n')
        records.write_environment(facts)
    assert (records.folder / "scenario.toml").read_bytes().decode() == 'title = "Größe"\n'
    assert json.loads((records.folder / "environment.json").read_text()) == facts


def test_records_may_be_kept_in_your_own_folder_that_holds_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "grid" / "cell"
    with Records.within(folder) as records:
        assert records.folder == folder
    with Records.within(folder) as records:  # the run had not begun
        records.write_scenario('name = "cell"')
    with pytest.raises(
        ResourceError, match=r"'.*cell' already has the records of a run: remove them, or choose another"
    ):
        Records.within(folder)


@pytest.mark.parametrize("name", ["../.clients.parquet.a.0", "a/.clients.parquet.a.0", "scenario.toml", "link", 3])
def test_a_state_that_names_another_file_as_a_part_of_clients_parquet_is_refused(name: Any, tmp_path: Path) -> None:
    """Parts are removed once they are merged."""
    with Records.create(tmp_path, "x", NOW) as records:
        state = records.state()
    (records.folder / "scenario.toml").write_text("mine")
    (records.folder / "link").symlink_to(tmp_path)
    state["clients"] |= {"parts": [name]}
    with (
        Records(records.folder, reopened=True) as again,
        pytest.raises(CheckpointError, match="checkpoints beside"),
    ):
        again.restore(state)
    assert (records.folder / "scenario.toml").read_text() == "mine"


def _reopened(tmp_path: Path) -> tuple[Path, Any]:
    """The folder and the state of a run with two evaluated rounds and a part of clients.parquet."""
    records = Records.create(tmp_path, "x", NOW)
    for round in (1, 2):
        records.add(replace(done(round), client_scalars=(ClientScalars(4, {"drift": 2.0}),)))
        records.add(evaluated("federated", round, 0.5, 0.25, 8))
    state = records.state()
    records._metrics.close()  # as after a kill: clients.parquet is not put together
    return records.folder, state


@pytest.mark.parametrize("damage", ["zeroed", "truncated", "gone rows"])
def test_a_damaged_part_of_clients_parquet_is_named_when_the_run_is_reopened(damage: str, tmp_path: Path) -> None:
    folder, state = _reopened(tmp_path)
    (part,) = folder.glob(".clients.parquet.*")
    content = part.read_bytes()
    if damage == "gone rows":
        state["clients"]["rows"] += 1
    else:
        half = content[: len(content) // 2]
        part.write_bytes(half if damage == "truncated" else half + bytes(len(content) - len(half)))
    complaint = (
        "clients.parquet' have 2 of the 3 rows" if damage == "gone rows" else f"{part.name}: cannot be read as Par"
    )
    with Records(folder, reopened=True) as again, pytest.raises(CheckpointError, match=complaint) as caught:
        again.restore(state)
    assert "; restore it from a copy, or run the scenario in another folder" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", [b"\0" * 20, b'{"round": 1', b"[1]", b"\xff{}"])
def test_a_damaged_line_of_metrics_jsonl_is_named_when_the_run_is_reopened(line: bytes, tmp_path: Path) -> None:
    folder, state = _reopened(tmp_path)
    first, second = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(line + b"\n" + second)
    with Records(folder, reopened=True) as again, pytest.raises(CheckpointError) as caught:
        again.restore(state)
    assert f"'{folder / 'metrics.jsonl'}': line 1: cannot be read as a JSON object" in str(caught.value)
    (folder / "metrics.jsonl").write_bytes(first + second + line + b"\n")  # later lines are written again
    with Records(folder, reopened=True) as again:
        again.restore(state)
    assert (folder / "metrics.jsonl").read_bytes() == first + second
