"""`rayfl analyse`: options, cost, resumption, and one line for every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import rayfl
from rayfl.__main__ import main
from rayfl.errors import DataError, ScenarioError
from rayfl.studies.analysis.heterogeneity import QUANTITIES
from rayfl.studies.analysis.replay import Replay, ReplayedRound
from rayfl.studies.analysis.run_folder import RunFolder
from tests.studies.analysis.scene import analysed, build


def command(*arguments: object) -> int:
    return main(["analyse", *map(str, arguments), "--backend", "inline"])


def test_it_says_what_it_costs_and_where_the_results_are(
    finished_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("gains", finished_run.path, "rounds=3,5", "--out", tmp_path) == 0
    said = capsys.readouterr().out
    assert "2 rounds with 10 client updates to replay, 14 evaluations of 24 samples" in said
    assert pq.read_table(tmp_path / "analyses" / "gains.parquet")["round"].to_pylist() == [3, 5]
    assert sorted(path.name for path in (tmp_path / "analyses").iterdir()) == [
        "gains.parquet",
        "gains.pdf",
        "gains.png",
    ]
    assert command("gains", finished_run.path, "rounds=[3, 5]", "--out", tmp_path) == 0
    assert "this analysis is finished" in capsys.readouterr().out


def test_an_interrupted_analysis_goes_on_where_it_stopped(
    finished_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[int] = []
    original = Replay.round

    def counted(self: Replay, number: int) -> ReplayedRound:
        if number == 5 and 5 not in replayed:
            replayed.append(5)
            raise DataError("gone")
        replayed.append(number)
        return original(self, number)

    monkeypatch.setattr(Replay, "round", counted)
    with pytest.raises(DataError, match="gone"):
        analysed("gains", finished_run, out=tmp_path)
    assert replayed == [3, 4, 5]
    rows = analysed("gains", finished_run, out=tmp_path)
    assert replayed == [3, 4, 5, 5, 6]
    assert [row["round"] for row in rows] == [3, 4, 5, 6]
    analysed("gains", finished_run, out=tmp_path, rounds=[4])  # other options, hence other work
    assert replayed[-1] == 4


def test_every_mistake_is_one_line(finished_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mistakes = {
        ("gain", finished_run.path): "unknown analysis 'gain'; did you mean 'gains'",
        ("gains", tmp_path): "is not the folder of a run",
        ("gains", tmp_path / "nothing"): "is not the folder of a run",
        ("gains", finished_run.path, "round=3"): "round",
        ("gains", finished_run.path, "rounds=0"): "rounds",
        ("gains", "rounds=3"): "name the folder of a run",
        ("variance", finished_run.path, "weights=1"): "weights",
        ("ntk", finished_run.path, "samples=30000"): "kernels of 30,000 samples do not fit",
        ("ntk", *[finished_run.path] * 3): "takes at most 2 runs at once; you named 3",
        ("landscape", finished_run.path, "mode=plane", "models=final,final,3"): "equal models define no plane",
    }
    for arguments, said in mistakes.items():
        assert command(*arguments) == 1, arguments
        error = capsys.readouterr().err
        assert error.startswith("error: "), arguments
        assert said in error, arguments
        assert error.count("\n") == 1, error


def test_a_result_that_is_replaced_is_said_and_one_that_is_damaged_is_named(
    finished_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = "curve", finished_run.path, "--out", tmp_path, "order=1"
    assert command(*curve, "window=3") == 0
    assert "note " not in capsys.readouterr().out
    assert command(*curve, "window=5") == 0
    said = "note     replaces curve.parquet, made with other options or runs; --out DIR keeps both\n"
    assert said in capsys.readouterr().out
    path = tmp_path / "analyses" / "curve.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert command(*curve, "window=5") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: cannot be read as Parquet, truncated or corrupt? (")
    assert error.count("\n") == 1


def test_costs_and_findings_count_in_words(finished_run: RunFolder) -> None:
    runs = [finished_run]

    def cost(name: str, **options: Any) -> str:
        analysis = build(name, **options)
        return str(analysis.cost(runs, analysis.units(runs)[:1]))

    assert cost("gains", rounds=3, samples=1) == "1 round with 5 client updates to replay, 7 evaluations of 1 sample"
    assert cost("curve", window=3, order=1) == "loading the data of 1 run to count batches; no training or evaluation"
    assert cost("heterogeneity", rounds=1).startswith("1 model, ")
    # three matrices of 4 x 4 numbers of 8 bytes
    assert cost("ntk", samples=4) == "1 comparison with kernels of 4 samples, 384 bytes each"
    rows = [{"run": 0, "round": round, **dict.fromkeys(QUANTITIES, 1.0)} for round in (1, 100)]
    said = build("heterogeneity").findings(rows, runs)
    assert [line[:14] for line in said] == ["round 1  scene", "round 100 scen"]
    rows = [{"run": 0, "round": round, "knn": 0.04, "linear_probe": 1.0} for round in (0, 6)]
    (line,) = build("probe").findings(rows, runs)
    assert line.endswith("nearest neighbours 4.00 % to 4.00 %, linear probe 100.00 % to 100.00 %")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backend": "inlin"}, "backend: 'inlin' is neither 'ray' nor 'inline'"),
        (
            {"backend": "inline", "address": "auto"},
            "address: has no effect without Ray (backend 'inline'); leave it out",
        ),
        ({"backend": "inline", "hosts": 2}, "hosts: has no effect without Ray (backend 'inline'); leave it out"),
    ],
)
def test_backends_are_checked_as_for_a_run(finished_run: RunFolder, options: Any, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        rayfl.analyse("gains", finished_run.path, quiet=True, **options)
    assert str(refused.value) == said


@pytest.mark.parametrize(("option", "value"), [("--hosts", 2), ("--address", "auto")])
def test_options_of_a_cluster_have_no_effect_without_one(
    option: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command("gains", "somewhere", option, value)
    assert f"{option}: has no effect with --backend inline" in capsys.readouterr().err
