"""python -m tools.peers.side_by_side --flower PYTHON --pfl PYTHON --fluke PYTHON: one small experiment in each.

The experiment is that of `tools.peers.task`: FedAvg with LeNet-5 on generated handwriting. The other simulators run in
virtual environments of their own, whose Python is named; one that is not named is left out. Runs take turns, each
process computes with one thread, and the quickest run of each system is shown.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rayfl.data.generated.handwriting import generate
from rayfl.errors import ResourceError
from rayfl.studies.scale.processes import DRIVER, peak_memory, processor_seconds
from tools.peers.task import CLASSES, CLIENTS, ROUNDS

COLUMNS = ("system", "s in all", "s a round", "CPU s a round", "memory, MB", "test accuracy, %", "s in all, every run")
ROUND = re.compile(r"\bround (\d+)\b.*accuracy ([\d.]+) %")
"""What each program prints after an evaluated round."""


class Row(NamedTuple):
    """What a run took.

    Attributes:
        total_s: Seconds from its command to its end.
        round_s: Seconds of a round, the mean of those after the first evaluated one.
        processor_s: Processor seconds of a round of all its processes, likewise.
        megabytes: Of all its processes at the peak (proportional set size).
        accuracy: Test accuracy of the last round, in per cent.
    """

    total_s: float
    round_s: float
    processor_s: float
    megabytes: float
    accuracy: float


def write_samples(path: Path) -> None:
    """Writes what rayfl's source `handwriting` generates, as the others read it; -1 owns the test set."""
    written = generate(0, CLIENTS, CLASSES)
    x = written.images[:, None] / np.float32(255)
    np.savez(path, x=x, y=written.labels.astype(np.int64), owner=np.where(written.is_test, -1, written.writer))


def measured(command: Sequence[str], environment: Mapping[str, str], rounds: int = ROUNDS) -> Row:
    """Runs a program that prints a line after every evaluated round.

    Raises:
        ResourceError: It ended before the last round.
    """
    begun = time.monotonic()
    found: dict[int, tuple[float, float, float]] = {}
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **environment}
        ) as process,
        peak_memory() as peak,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if said := ROUND.search(line):
                used = processor_seconds()
                found.setdefault(int(said[1]), (time.monotonic(), sum(used.values()) - used[DRIVER], float(said[2])))
    total = time.monotonic() - begun
    if rounds not in found:
        raise ResourceError(f"no round {rounds}: {' '.join(command)}")
    first, last = min(found), max(found)
    seconds, processor = ((found[last][part] - found[first][part]) / (last - first) for part in (0, 1))
    return Row(total, seconds, processor, (sum(peak.values()) - peak[DRIVER]) / 1e6, found[last][2])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.peers.side_by_side", description="Measure simulators.")
    for peer in ("flower", "pfl", "fluke"):
        parser.add_argument(f"--{peer}", metavar="PYTHON", help=f"the Python that has {peer}")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default: 3)")
    options = parser.parse_args(arguments)
    module = "tools.peers.{}_fedavg"
    commands = {
        f"rayfl, {backend}": [sys.executable, "-m", module.format("rayfl"), backend] for backend in ("ray", "inline")
    }
    named = ((peer, getattr(options, peer)) for peer in ("flower", "pfl", "fluke"))
    commands |= {peer: [python, "-m", module.format(peer)] for peer, python in named if python}
    rows: dict[str, list[Row]] = {system: [] for system in commands}
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder, "samples.npz")
        write_samples(samples)
        environment = {"SAMPLES": str(samples), "RUNS": folder, "OMP_NUM_THREADS": "1"}
        for _ in range(options.repeat):
            for system, command in commands.items():
                rows[system].append(measured(command, environment))
                print(system, rows[system][-1], file=sys.stderr, flush=True)
    for line in (COLUMNS, ("---",) * len(COLUMNS)):
        print("| " + " | ".join(line) + " |")
    for system, runs in rows.items():
        best = min(runs)
        cells = (f"{best.total_s:.1f}", f"{best.round_s:.3f}", f"{best.processor_s:.3f}", f"{best.megabytes:,.0f}")
        every = ", ".join(f"{run.total_s:.1f}" for run in runs)
        print("| " + " | ".join((system, *cells, f"{best.accuracy:.2f}", every)) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
