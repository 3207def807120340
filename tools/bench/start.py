"""From the command to the first finished round, on a Ray cluster that the command starts itself."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rayfl.config.loading import load_scenario
from tools.bench.parallel import scenario
from tools.bench.table import Row

REPETITIONS = 3


def seconds_to_first_round(scenario_file: Path, out: Path) -> float:
    """Until the run says how its first round scored, which is right after it.

    Raises:
        RuntimeError: the run ended without saying so.
    """
    command = [sys.executable, "-m", "rayfl.scenario", str(scenario_file), "--out", str(out)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            if "(round 1 of" in line:
                seconds = time.perf_counter() - start
                process.stdout.read()
                return seconds
            said.append(line)
    raise RuntimeError(f"no first round from {' '.join(command)}:\n{''.join(said)}")


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_start.toml"
        file.write_text(load_scenario(scenario(rounds=1)).to_toml(), encoding="utf-8")
        times = [seconds_to_first_round(file, Path(folder) / "runs") for _ in range(REPETITIONS)]
    detail = f"median of {', '.join(f'{seconds:.1f}' for seconds in times)} s"
    return [Row("start: command to first finished round", statistics.median(times), "s", "<=", 12, detail)]
