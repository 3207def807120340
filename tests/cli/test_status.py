"""`rayfl status` on runs that have ended, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from rayfl.cli.cluster import main


def test_ended_runs_in_a_folder_are_listed_with_their_workers_and_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rayfl.cli.submitted_runs.names_under_way", lambda address: [])
    for name, status, log in (("one", "finished", True), ("two", "failed", True), ("not-submitted", "finished", False)):
        (tmp_path / name).mkdir()
        content = {"status": status, "reason": "why" if status == "failed" else None, "phase": "p", "rounds": 6}
        content |= {"committed_rounds": 4, "workers": 3, "nodes": 2, "started": "2026-01-01T10:00:00+00:00"}
        (tmp_path / name / "status.json").write_text(json.dumps(content))
        if log:
            (tmp_path / name / "run.log").write_text("")
    assert main(["--out", str(tmp_path)], "rayfl status") == 0
    printed = capsys.readouterr().out
    assert "no submitted run is active on this cluster" in printed
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] in (["one"], ["two"])]
    assert rows == [
        ["one", "4", "of", "6", "p", "3", "2", "2026-01-01", "10:00:00", "finished"],
        ["two", "4", "of", "6", "p", "3", "2", "2026-01-01", "10:00:00", "failed:", "why"],
    ]
    assert "not-submitted" not in printed


@pytest.mark.parametrize("columns", [None, 80], ids=["pipe", "terminal"])
def test_names_which_attach_and_resume_need_are_whole(
    columns: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rayfl.cli.submitted_runs.names_under_way", lambda address: [])
    if columns:
        console = Console(width=columns)
        monkeypatch.setattr("rayfl.cli.submitted_runs.table_console", lambda: console)
    name = "femnist_cyclic-20260101-100000-002"
    (tmp_path / name).mkdir()
    (tmp_path / name / "run.log").write_text("")
    content: dict[str, object] = {
        "status": "failed",
        "reason": "training diverged in round 12 of client 7",
        "phase": "federated",
    }
    content |= {
        "rounds": 600,
        "committed_rounds": 410,
        "workers": 12,
        "nodes": 2,
        "started": "2026-01-01T10:00:00+00:00",
    }
    (tmp_path / name / "status.json").write_text(json.dumps(content))
    assert main(["--out", str(tmp_path)], "rayfl status") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if name in line.split()]
    assert [line for line in lines if "410 of 600" in line]
    assert max(map(len, lines)) <= (columns or 1000)


def test_a_folder_has_no_effect_on_the_status_of_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cyclic", "--out", "elsewhere"], "rayfl status")
    assert "--out: has no effect with NAME; leave it out" in capsys.readouterr().err
