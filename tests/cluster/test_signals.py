"""Ray and the program's SIGTERM handler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import ray

import rayfl
from rayfl.cluster.connection import attached
from tests.test_scenario import MY_ARRAYS, TINY


@pytest.fixture(autouse=True)
def handler_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(autouse=True)
def ray_that_only_sets_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "init", lambda **_: signal.signal(signal.SIGTERM, rays_own))


def rays_own(number: int, frame: Any) -> None:
    sys.exit(number)


def test_a_programs_own_sigterm_handler_outlives_the_start_of_ray() -> None:
    def mine(number: int, frame: Any) -> None: ...

    signal.signal(signal.SIGTERM, mine)
    with attached(None):
        assert signal.getsignal(signal.SIGTERM) is mine


def test_a_program_that_ignores_sigterm_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with attached(None):
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_rays_handler_stays_where_the_program_has_none() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with attached(None):
        assert signal.getsignal(signal.SIGTERM) is rays_own


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_on_ray_that_is_terminated_leaves_its_last_model_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "my_arrays.py").write_text(MY_ARRAYS)
    checkout = str(Path(rayfl.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(tmp_path)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-u", "-m", "rayfl.scenario", "tiny.toml", "phases.federated.rounds=1000000"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        told = list(takewhile(lambda line: "test accuracy" not in line, running.stdout))
        running.terminate()
        _, complaint = running.communicate(timeout=90)
    assert (running.returncode, complaint) == (130, "interrupted\n")
    records = next(line for line in told if line.startswith("records"))
    folder = Path(records.split(maxsplit=1)[1].strip())
    status = json.loads((folder / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("interrupted", "SIGTERM")
    assert status["model"]["round"] == status["committed_rounds"] > 0
    assert (folder / "model.safetensors").is_file()
