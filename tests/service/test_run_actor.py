"""How a submitted run's actor ends, without a cluster."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

import rayfl.runs.launch
from rayfl.config.scenario import Scenario
from rayfl.errors import ResourceError
from rayfl.runs.options import RunOptions
from rayfl.runs.run_lock import HeldError
from rayfl.service.run_actor import LOG, RunActor, Submission
from tests.callbacks.scene import tables


def ended(folder: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the log says after a run that failed with an error before it wrote records."""

    def carry_out(*_: Any) -> None:
        raise error

    monkeypatch.setattr(rayfl.runs.launch, "carry_out", carry_out)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(current_actor=None))
    killed: list[Any] = []
    monkeypatch.setattr(ray, "kill", killed.append)
    scenario = Scenario.from_tables(tables())
    options = RunOptions(data_dir=folder, starts=folder)
    actor = RunActor(Submission(scenario, folder, options, pickle.dumps({})))
    actor._run(None)
    assert actor.ended(0.0)
    assert killed == [None]
    return (folder / LOG).read_text()


def test_a_run_that_fails_beside_a_damaged_status_says_why_and_writes_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status.json").write_text("{")
    assert ended(tmp_path, ResourceError("left on purpose"), monkeypatch) == "error: left on purpose\n"
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("failed", "left on purpose")


def test_a_run_whose_folder_another_holds_leaves_its_records_alone_even_damaged_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status.json").write_text("{")
    assert ended(tmp_path, HeldError("another works there"), monkeypatch) == "error: another works there\n"
    assert (tmp_path / "status.json").read_text() == "{"
