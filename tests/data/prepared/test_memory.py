"""Data on disk does not enter the memory of the process that starts a run, of hosts, or of what prepares it;
neither do clients that hosts load.

`RAYFL_PREPARED_MIB=8192 python -m pytest -s tests/data/prepared/test_memory.py` is the proof at 8 GiB, of `make
release-check`; it needs 9 GiB of memory for the run it compares with, and 17 GiB of disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MIB = int(os.environ.get("RAYFL_PREPARED_MIB", "256"))
"""Of the data, 4 kB a row."""

PREPARING, DRIVER, HOST = 120 + 0.02 * MIB, 1024, 700
"""The most memory in MiB without a file behind it: what preparing adds, the process that starts a run, a host."""


LOADED_MIB, LOADED_GROWTH = 256, 110
"""Of clients that hosts load, and how much more a host may take with them than with a sixteenth; it keeps 64 MiB."""


def step(name: str, folder: Path, mib: int = MIB) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.data.prepared.measured", name, str(folder), str(mib)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) or {}
    print(name, found)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux says what a process shares")
def test_prepared_data_stays_on_disk_and_trains_the_model_of_data_in_memory(tmp_path: Path) -> None:
    step("written", tmp_path)
    preparing = step("prepared", tmp_path)
    on_ray = step("on_ray", tmp_path)
    assert on_ray["model"] == step("in_memory", tmp_path)["model"]
    assert preparing["peak"] < PREPARING
    assert on_ray["driver"] < DRIVER
    assert on_ray["host"] < HOST


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux says what a process shares")
def test_clients_that_hosts_load_do_not_fill_them_and_train_the_model_of_data_in_memory(tmp_path: Path) -> None:
    few, many = (step("loaded_on_ray", tmp_path / str(mib), mib) for mib in (LOADED_MIB // 16, LOADED_MIB))
    assert many["model"] == step("loaded_here", tmp_path / "here", LOADED_MIB)["model"]
    assert many["driver"] < few["driver"] + LOADED_GROWTH / 2
    assert many["host"] < few["host"] + LOADED_GROWTH
