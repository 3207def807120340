"""Trains one client for many small steps each time that a line comes in, and prints the CPU seconds of its update."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rayfl
from rich.console import Console

PLAIN = Path(__file__).parents[1] / "scenes" / "plain.toml"
MANY = {"phases.0.cohort": 1, "phases.0.local": {"steps": 1500, "batch_size": 4, "lr": 0.01}, "checkpoint.rounds": 0}


class Clock(rayfl.Callback):
    """The CPU time of the only round, without the start and the end of the run."""

    _began: float = 0.0
    _seconds: float = 0.0

    def on_start(self, run: Any) -> None:
        self._began = time.process_time()

    def on_round(self, run: Any) -> None:
        self._seconds = time.process_time() - self._began

    def seconds(self) -> float:
        return self._seconds


def main() -> None:
    assert Path(rayfl.__file__).is_relative_to(os.environ["CHECKOUT"]), rayfl.__file__
    with rayfl.Session(backend="inline", console=Console(quiet=True)) as session:
        for _ in sys.stdin:
            clock = Clock(name="clock")
            with tempfile.TemporaryDirectory() as folder:
                session.run(PLAIN, overrides=MANY, folder=Path(folder) / "run", callbacks=[clock])
            print(clock.seconds(), flush=True)


if __name__ == "__main__":
    main()
