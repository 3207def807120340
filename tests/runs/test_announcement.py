"""What is printed before a run begins, and that the records have what is left out there."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import rayfl
from rayfl.config.scenario import Scenario
from rayfl.runs.announcement import announce, say
from rayfl.runs.preparation import prepare
from tests.callbacks.scene import PLAIN


def scenario(data: dict[str, Any]) -> dict[str, Any]:
    return {"name": "small", "data": data, "model": "mlp", "phases": [PLAIN | {"rounds": 1, "cohort": 2}]}


def test_data_from_files_is_one_line_and_the_records_have_its_files_and_digests(tmp_path: Path) -> None:
    file, rng = tmp_path / "readings.npz", np.random.default_rng(0)
    x, y = rng.normal(size=(24, 1, 4, 4)).astype(np.float32), np.arange(24) % 2
    np.savez(file, train_x=x, train_y=y, test_x=x[:6], test_y=y[:6])
    console = Console(file=io.StringIO(), width=80)
    data = {"name": "npz_file", "options": {"path": str(file)}, "partition": "iid", "clients": 4}
    result = rayfl.run(scenario(data), backend="inline", out=tmp_path / "runs", console=console)
    assert isinstance(console.file, io.StringIO)
    title, line, after, *_ = console.file.getvalue().splitlines()
    counts = "4 clients with 6 to 6 training samples (mean 6), 6 test samples, 2 classes"
    assert title == "small (scenario small, seed 0)"
    assert line == f"data     npz_file readings.npz, from files: {counts}"
    assert after.startswith("model    mlp, ")
    recorded = json.loads((result.directory / "environment.json").read_text())["data"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert recorded["files"] == [{"path": str(file), "sha256": digest}]
    assert recorded["description"] == f"arrays of {file}"


def test_generated_data_stands_out_and_says_for_which_data_and_why() -> None:
    data = {"name": "femnist", "source": "generated", "clients": 4}
    run_plan, model = prepare(Scenario.from_tables(scenario(data)), Path("no-data-here"))
    file = io.StringIO()
    announce(Console(file=file, force_terminal=True, width=2000, color_system="standard", _environ={}), run_plan, model)
    _, line, notice, *_ = file.getvalue().splitlines()
    yellow, plain = "\x1b[33m", "\x1b[0m"
    assert line.startswith(f"{yellow}data     femnist, generated: 4 clients with ")
    assert line.endswith(plain)
    assert notice.startswith(f"{yellow}note     Stand-in for FEMNIST (generated handwriting), not real data: ")
    assert "data.source is 'generated'; leave it out to use real files" in notice
    assert "writers, seed" not in file.getvalue()  # the description is for the records


def test_a_path_that_is_wider_than_the_terminal_is_continued_after_a_slash_below_itself() -> None:
    for terminal, lines in (
        (True, ["records  /shared/experiments/", "         femnist/runs/", "         femnist_cyclic-20260101"]),
        (False, ["records  /shared/experiments/femnist/runs/femnist_cyclic-20260101"]),
    ):
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=32, color_system=None, _environ={})
        say(console, "records  /shared/experiments/femnist/runs/femnist_cyclic-20260101")
        assert file.getvalue().splitlines() == lines
