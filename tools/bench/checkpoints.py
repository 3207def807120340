"""The cost of a checkpoint: how long rounds wait for it, and how much it writes if few clients' states have changed.

LeNet-5 with SCAFFOLD produces as many bytes of state per second of training as ResNet-18 on one core: 250 kB per 0.1 s,
and 45 MB per 16 s. A checkpoint is due after every third round. It is captured and written during the following round
and added to the others during the next one; the third round is undisturbed, and the other two are compared with it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import PrivateAttr
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.studies.scale.processes import processor_seconds
from tools.bench.rounds import NEVER
from tools.bench.table import Row

CLIENTS = 200
COHORT = 10
EVERY = 3
CHECKPOINTS = 12
ROUNDS = EVERY * (CHECKPOINTS + 1)
SAMPLES = 512
MIB = 2**20
STATE_BYTES = 4 * 62006
"""The bytes of LeNet-5's parameters."""


def scenario() -> dict[str, Any]:
    """Returns a scenario with ten clients per round, 16 steps each; every client takes part again after 20 rounds."""
    cohorts = [list(range(first, first + COHORT)) for first in range(0, CLIENTS, COHORT)]
    return {
        "name": "bench_checkpoints",
        "data": {
            "name": "tools.bench.data:images",
            "clients": CLIENTS,
            "partition": "iid",
            "options": {"train": CLIENTS * SAMPLES},
        },
        "model": "lenet5",
        "phases": [
            {
                "name": "federated",
                "algorithm": "scaffold",
                "rounds": ROUNDS,
                "cohort": {"explicit": cohorts},
                "local": {"epochs": 1, "batch_size": SAMPLES // 16},
            }
        ],
        "evaluation": {"every": NEVER},
        "checkpoint": {"minutes": 0, "rounds": EVERY, "ends": False},
        "resources": {"hosts": 2},
    }


class Clock(Callback):
    """Records wall-clock and processor time of rounds, and the new state files after each."""

    _began: list[tuple[float, float]] = PrivateAttr(default_factory=list)
    _ended: list[tuple[float, float]] = PrivateAttr(default_factory=list)
    _written: dict[str, int] = PrivateAttr(default_factory=dict)

    def on_round(self, run: RunSoFar) -> None:
        self._ended.append(_now())
        for file in (run.folder / "checkpoints" / "states").glob("*/*.safetensors"):
            if file.name not in self._written:
                self._written[file.name] = file.stat().st_size
        self._began.append(_now())

    def seconds(self) -> list[float]:
        """Wall-clock time of every round except the first."""
        return [ended[0] - began[0] for began, ended in self._rounds()]

    def processor_seconds(self) -> list[float]:
        """Processor time of all processes of the run, in every round except the first."""
        return [ended[1] - began[1] for began, ended in self._rounds()]

    def bytes_written(self) -> int:
        return sum(self._written.values())

    def _rounds(self) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        return list(zip(self._began[:-1], self._ended[1:], strict=True))


def _now() -> tuple[float, float]:
    return time.perf_counter(), sum(processor_seconds().values())


def by_place(seconds: Sequence[float]) -> tuple[list[float], list[float], list[float]]:
    """Splits rounds into those during which a checkpoint is written, those after them, and undisturbed ones.

    Args:
        seconds: Times of all rounds except the first; the first checkpoint is due after round `EVERY`.
    """
    beside, after, alone = (list(seconds[first::EVERY]) for first in (EVERY - 1, EVERY, EVERY + 1))
    return beside, after, alone


def measured(backend: Literal["inline", "ray"]) -> Clock:
    clock = Clock(name="clock")
    with TemporaryDirectory() as folder:
        rayfl.run(scenario(), backend=backend, folder=folder, callbacks=[clock], console=Console(quiet=True))
    return clock


def rows_of(backend: str, clock: Clock) -> list[Row]:
    rows = []
    for what, seconds in (("time", clock.seconds()), ("processor time", clock.processor_seconds())):
        beside, after, alone = (statistics.median(part) for part in by_place(seconds))
        detail = f"medians of {CHECKPOINTS}: {1e3 * beside:.0f}, {1e3 * after:.0f} and {1e3 * alone:.0f} ms"
        name = f"checkpoints, {backend}: {what} of a round"
        rows += [
            Row(f"{name} beside which one is written, over one without", beside / alone, "×", "<=", 1.02, detail),
            Row(f"{name} that follows it, over one without", after / alone, "×", "<=", 1.02, detail),
        ]
    written, changed = clock.bytes_written() / CHECKPOINTS, EVERY * COHORT * STATE_BYTES
    kept = min(CLIENTS, ROUNDS * COHORT) * STATE_BYTES
    detail = f"{written / MIB:.1f} MiB per checkpoint, including the server's part; clients keep {kept / MIB:.1f} MiB"
    name = f"checkpoints, {backend}: bytes that one writes over those that clients have changed"
    return [*rows, Row(name, written / changed, "×", "<=", 1.15, detail)]


def measure() -> list[Row]:
    rows = []
    backends: tuple[Literal["inline", "ray"], ...] = ("inline", "ray")
    for backend in backends:
        rows += rows_of(backend, measured(backend))
    for row in rows:
        print(f"  {row.name}: {row.figure:.3f} ({row.detail})", file=sys.stderr, flush=True)
    return rows
