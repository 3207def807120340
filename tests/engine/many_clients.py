"""python -m tests.engine.many_clients CLIENTS...: memory and time a registered client, by preparing and running rounds.

Clients are natural, with 24 bytes of data each. The first number warms up; memory is that above what the process had.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.backends.inline import inline_session
from rayfl.config.scenario import Scenario
from rayfl.engine.events import RoundDone
from rayfl.runs.preparation import prepare

COHORT = 5


def data(clients: int, samples: int) -> Any:
    """Clients with `samples` samples of 24 bytes, and 64 test samples without owner."""
    number = clients * samples
    x, y = np.zeros((number, 4), np.float32), np.arange(number) % 3
    x[:, 0] = y
    return {"train": (x, y, np.repeat(np.arange(clients, dtype=np.int32), samples)), "test": (x[:64], y[:64])}


def scenario(clients: int, cohort: Any, held_out: bool) -> Scenario:
    """Two rounds, evaluated on few clients if samples are held out."""
    source: dict[str, Any] = {
        "name": "tests.engine.many_clients:data",
        "options": {"clients": clients, "samples": 3 if held_out else 1},
    }
    shares = {"validation_share": 0.3, "test_share": 0.3} if held_out else {}
    return Scenario.from_tables(
        {
            "name": "many_clients",
            "data": source | shares,
            "model": {"name": "mlp", "hidden": [2]},
            "phases": [{"name": "f", "rounds": 2, "cohort": cohort, "local": {"steps": 1, "batch_size": 1}}],
            "evaluation": {"every": 1, "clients": 4} if held_out else {"every": 1},
        }
    )


def resident_bytes(field: str) -> int:
    """A field of this process's memory: VmRSS, or VmHWM, its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def measured(clients: int, cohort: Any, held_out: bool) -> dict[str, float]:
    """CPU seconds and bytes at the peak of a run with so many clients."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, start = resident_bytes("VmRSS"), time.process_time()
    run, _ = prepare(scenario(clients, cohort, held_out), Path("no-data-here"))
    prepared = time.process_time()
    with inline_session(run) as session:
        rounds = sum(isinstance(event, RoundDone) for event in session.events())
    ran = time.process_time()
    peak = resident_bytes("VmHWM") - before
    return {"rounds": rounds, "prepare_s": prepared - start, "run_s": ran - prepared, "bytes": peak}


def main() -> None:
    """Prints a line of JSON for every kind of run and number of clients."""
    for kind in sys.argv[1].split(","):
        for clients in map(int, sys.argv[2:]):
            cohort: Any = {"by_size": {"by_size": COHORT}, "bernoulli": {"bernoulli": COHORT / clients}}.get(
                kind, COHORT
            )
            print(
                json.dumps({"kind": kind, "clients": clients} | measured(clients, cohort, kind == "held_out")),
                flush=True,
            )


if __name__ == "__main__":
    main()
