"""A run from the command line that starts Ray itself: the dashboard, and what is left if it is terminated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

import rayfl
from tests.cli.test_run import MY_ARRAYS, TINY

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class Terminated(NamedTuple):
    """A run that was sent SIGTERM after its first evaluation.

    Attributes:
        told: The lines it had printed by then.
        dashboard: What had been served at the address that it printed.
        status: Its exit status.
        complaint: What it wrote to stderr.
    """

    told: list[str]
    dashboard: str
    status: int
    complaint: str


def after(words: str, told: list[str]) -> str:
    (found,) = (line.partition(words)[2].strip() for line in told if words in line)
    return found


@pytest.fixture(scope="module")
def terminated(tmp_path_factory: pytest.TempPathFactory) -> Terminated:
    folder = tmp_path_factory.mktemp("terminated")
    (folder / "tiny.toml").write_text(TINY)
    (folder / "my_arrays.py").write_text(MY_ARRAYS)
    checkout = str(Path(rayfl.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(folder)]), "OMP_NUM_THREADS": "1"}
    environment |= {"COLUMNS": "200", "RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-u", "-m", "rayfl.scenario", "tiny.toml", "phases.federated.rounds=1000000"]
    with subprocess.Popen(
        [*command, "resources.hosts=1", "resources.dashboard=true"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        told = list(takewhile(lambda line: "test accuracy" not in line, running.stdout))
        try:
            with urllib.request.urlopen(after("dashboard at", told)) as answer:
                dashboard = answer.read().decode()
        finally:
            running.terminate()
            _, complaint = running.communicate(timeout=90)
    return Terminated(told, dashboard, running.returncode, complaint)


def test_a_run_that_asks_for_it_prints_the_address_of_rays_dashboard_which_answers(terminated: Terminated) -> None:
    assert after("dashboard at", terminated.told).startswith("http://127.0.0.1:")
    assert "Ray Dashboard" in terminated.dashboard


def test_a_run_on_ray_that_is_terminated_leaves_its_last_model_and_says_why(terminated: Terminated) -> None:
    assert (terminated.status, terminated.complaint) == (130, "interrupted\n")
    folder = Path(after("records", terminated.told))
    status = json.loads((folder / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("interrupted", "SIGTERM")
    assert status["model"]["round"] == status["committed_rounds"] > 0
    assert (folder / "model.safetensors").is_file()
