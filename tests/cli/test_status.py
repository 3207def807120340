"""`rayfl status` on runs that have ended, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
        ["one", "finished", "4", "of", "6", "p", "3", "2", "2026-01-01", "10:00:00"],
        ["two", "failed:", "why", "4", "of", "6", "p", "3", "2", "2026-01-01", "10:00:00"],
    ]
    assert "not-submitted" not in printed
