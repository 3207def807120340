"""A short run of the chaos command: a few kills, the same bits, nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_runs_of_which_processes_are_killed_end_with_the_same_bits(tmp_path: Path) -> None:
    records = tmp_path / "chaos.jsonl"
    options = ["--kills", "3", "--rounds", "20", "--seed", "3", "--records", str(records)]
    ended = subprocess.run(
        [sys.executable, "-m", "tools.chaos", *options], capture_output=True, text=True, timeout=500, check=False
    )
    assert ended.returncode == 0, ended.stderr
    outcomes = [json.loads(line) for line in records.read_text().splitlines()]
    assert sum(len(outcome["kills"]) for outcome in outcomes) == 3
    assert not any(outcome["problem"] for outcome in outcomes)
