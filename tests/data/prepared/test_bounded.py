"""What preparing takes does not grow with the data, from whatever source and in whatever order its rows are.

`RAYFL_PREPARED_MIB=512 python -m pytest -s tests/data/prepared/test_bounded.py` prints the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.prepared.test_memory import MIB

GROWTH = 100
"""The most that preparing may add, in MiB of memory without a file behind it; a fragment has 256 MiB."""

SOURCES = {
    "arrow_file": "dirichlet", "parquet_folder": "dirichlet", "npz_file": "natural", "npz_packed": "iid",
    "images": "iid", "items": "dirichlet", "sites": "natural",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux says what a process shares")
@pytest.mark.parametrize("source", SOURCES)
def test_preparing_takes_as_little_memory_for_any_source(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path / "cache"))
    for step in ("written", "prepared"):
        words = [step, str(tmp_path), str(MIB), source, SOURCES[source]]
        command = [sys.executable, "-m", "tests.data.prepared.large", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout.splitlines()[-1])
    print(f"{source} of {MIB} MiB, {SOURCES[source]}: {grown:.0f} MiB")
    assert grown < GROWTH
