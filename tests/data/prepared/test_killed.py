"""A preparation that SIGKILL ends at any moment goes on, and leaves the bytes of one that nothing ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_preparation_killed_at_any_moment_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.data.prepared.killed", str(tmp_path), "images"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["moments"] > 50
    assert found["kills"] > 3
