"""What a checkpoint costs: how long rounds wait for it, and what it writes where few clients' states have changed.

LeNet-5 under SCAFFOLD leaves as many bytes of states for a second of training as ResNet-18 does on a core: 250 kB after
0.1 s, and 45 MB after 16 s. A checkpoint is due after every third round. It is captured and written beside the round
that follows, and joins the others beside the next one; the third is left alone, and is what those two are compared
with.
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
from tools.bench.processes import processor_seconds
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
"""LeNet-5 has so many parameters."""


def scenario() -> dict[str, Any]:
    """Ten clients a round in turn, 16 steps each; a client comes back after 20 rounds."""
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
    """Notes what rounds take by the clock and of the processor, and which files of states are new after each."""

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
        """By the clock, of every round but the first."""
        return [ended[0] - began[0] for began, ended in self._rounds()]

    def processor_seconds(self) -> list[float]:
        """Of all processes of the run, in every round but the first."""
        return [ended[1] - began[1] for began, ended in self._rounds()]

    def bytes_written(self) -> int:
        return sum(self._written.values())

    def _rounds(self) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        return list(zip(self._began[:-1], self._ended[1:], strict=True))


def _now() -> tuple[float, float]:
    return time.perf_counter(), sum(processor_seconds().values())


def by_place(seconds: Sequence[float]) -> tuple[list[float], list[float], list[float]]:
    """Rounds beside which a checkpoint is written, those before which it is added to the others, and those between.

    Args:
        seconds: Of every round but the first, the one after which a checkpoint is first due being number `EVERY`.
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
    detail = f"{written / MIB:.1f} MiB a checkpoint, the server's part included; clients keep {kept / MIB:.1f} MiB"
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
