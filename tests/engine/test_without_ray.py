"""What a run in one process does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["ray"] = None  # an import of ray now fails, as where it is not installed
import rayfl
from tests.engine.scenes import tables
result = rayfl.run(tables(), backend="inline", out=sys.argv[1])
print("rounds:", result.metrics["round"].to_pylist())
print("loaded:", [name for name in ("torchvision", "torch._dynamo", "opacus") if name in sys.modules])
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.takes("imports rayfl in a process of its own")
def test_the_inline_backend_works_where_ray_is_not_installed(printed: str) -> None:
    assert "rounds: [2, 3, 4, 6]" in printed


@pytest.mark.slow
def test_a_run_that_uses_nothing_of_torchvision_or_opacus_does_not_wait_for_their_import(printed: str) -> None:
    assert "loaded: []" in printed
