from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.modules["ray"] = None  # an import of ray now fails, as where it is not installed
import rayfl
from tests.engine.scenes import tables
result = rayfl.run(tables(), backend="inline", out=sys.argv[1])
print("rounds:", result.metrics["round"].to_pylist())
"""


def test_the_inline_backend_works_where_ray_is_not_installed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rounds: [2, 3, 4, 6]" in done.stdout
