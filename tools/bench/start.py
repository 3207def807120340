"""Time from a command to its first round, compared with starting Ray and a first actor; and runs in a session."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rayfl.config.loader import load_scenario
from tools.bench.parallel import scenario
from tools.bench.table import Row

REPETITIONS = 3

RAY_ALONE = """
import ray
ray.init(address="local", include_dashboard=False, log_to_driver=False)

@ray.remote
class First:
    def answer(self):
        return 1

first = First.remote()
ray.get(first.answer.remote())
print("answered", flush=True)
ray.shutdown()
"""


IN_A_SESSION = """
import sys, time
import rayfl
from rich.console import Console

with rayfl.Session(out=sys.argv[2], console=Console(quiet=True)) as session:
    for number in range(4):
        start = time.perf_counter()
        session.run(sys.argv[1])
        print(time.perf_counter() - start, flush=True)
"""


def seconds_until(said: str, command: Sequence[str]) -> float:
    """Returns the seconds from the start of a process until it prints a line with this text; waits for its end.

    Raises:
        RuntimeError: It ended without printing it.
    """
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            if said in line:
                seconds = time.perf_counter() - start
                process.stdout.read()
                return seconds
            lines.append(line)
    raise RuntimeError(f"{' '.join(command)} never printed '{said}':\n{''.join(lines)}")


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_start.toml"
        file.write_text(load_scenario(scenario(rounds=1)).to_toml(), encoding="utf-8")
        run = [sys.executable, "-m", "rayfl.scenario", str(file), "--out", str(Path(folder) / "runs")]
        alone, ray, inline = [], [], []
        session = [sys.executable, "-c", IN_A_SESSION, str(file), str(Path(folder) / "session")]
        first, *later = map(
            float, subprocess.run(session, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        )
        for _ in range(REPETITIONS):  # in turns, so that other programs affect all of them
            alone.append(seconds_until("answered", [sys.executable, "-c", RAY_ALONE]))
            # "records" is the last line that a run prints before its first round
            ray.append(seconds_until("records  ", run))
            inline.append(seconds_until("records  ", [*run, "--backend", "inline"]))
    beyond = statistics.median(whole - part for whole, part in zip(ray, alone, strict=True))
    return [
        Row("start: command to first round, inline", statistics.median(inline), "s", "<=", 3, _each(inline)),
        Row("start: command to first round, Ray, beyond Ray's own", beyond, "s", "<=", 2, f"of {_each(ray)}"),
        Row("start: Ray's own init and first actor", statistics.median(alone), "s", "<=", None, _each(alone)),
        Row("start: run of one round, later in a session", statistics.median(later), "s", "<=", 2, _each(later)),
        Row("start: run of one round, first in a session", first, "s", "<=", None, _each([first])),
    ]


def _each(times: Sequence[float]) -> str:
    return f"{', '.join(f'{seconds:.1f}' for seconds in times)} s"
