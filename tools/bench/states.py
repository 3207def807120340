"""Client states in memory and on disk: 10,000 stateful clients in one process with a budget of 64 MiB.

LeNet-5 with SCAFFOLD: control variates of 250 kB each, 2.3 GiB in total. Every round trains 500 new clients with one
step each, so only client states grow.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rayfl.backends.inline import inline_session
from rayfl.engine.events import RoundDone
from rayfl.engine.memory import keep_freed_memory
from tools.bench.processes import anonymous_bytes
from tools.bench.rounds import NEVER, job_of
from tools.bench.table import Row

CLIENTS, COHORT = 10_000, 500
ROUNDS = CLIENTS // COHORT
BUDGET_GB = 0.0625
MIB = 2**20


def scenario() -> dict[str, Any]:
    return {
        "name": "bench_states",
        "data": {
            "name": "tools.bench.data:images",
            "clients": CLIENTS,
            "partition": "iid",
            "options": {"train": 2 * CLIENTS},
        },
        "model": "lenet5",
        "phases": [
            {
                "name": "federated",
                "algorithm": "scaffold",
                "rounds": ROUNDS,
                "cohort": {"explicit": [list(range(first, first + COHORT)) for first in range(0, CLIENTS, COHORT)]},
                "local": {"steps": 1, "batch_size": 2},
            }
        ],
        "evaluation": {"every": NEVER},
        "resources": {"client_state_gb": BUDGET_GB},
    }


@dataclass(frozen=True)
class Taken:
    """After a round: seconds since the start of the first one, private memory, and bytes in scratch files."""

    seconds: float
    memory: int
    on_disk: int


def taken() -> list[Taken]:
    """Returns the measurements after every round."""
    keep_freed_memory()  # as every worker process does
    job, _ = job_of(scenario())
    start = time.perf_counter()
    with inline_session(job) as session:
        return [
            Taken(time.perf_counter() - start, anonymous_bytes("self"), scratch_bytes())
            for event in session.events()
            if isinstance(event, RoundDone)
        ]


def scratch_bytes() -> int:
    """Returns the bytes of this process' open files that no folder lists."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(link.stat().st_size for link in links if str(link.readlink()).endswith(" (deleted)"))


def taken_in_fresh_process() -> list[Taken]:
    done = subprocess.run([sys.executable, "-m", "tools.bench.states"], stdout=subprocess.PIPE, text=True, check=True)
    return [Taken(**one) for one in json.loads(done.stdout.splitlines()[-1])]


def measure() -> list[Row]:
    found = taken_in_fresh_process()
    quarter, last = found[ROUNDS // 4 - 1], found[-1]
    clients = f"{CLIENTS // 4:,} and {CLIENTS:,} clients"
    memory = f"{quarter.memory / MIB:.0f} and {last.memory / MIB:.0f} MiB with {clients}, of which {1024 * BUDGET_GB:g}"
    speeds = [COHORT * (ROUNDS // 4) / (after.seconds - before.seconds) for before, after in (
        (found[0], found[ROUNDS // 4]), (found[-1 - ROUNDS // 4], last))]  # fmt: skip
    return [
        Row(
            "states: memory of the last three quarters of 10,000 stateful clients",
            (last.memory - quarter.memory) / MIB,
            "MiB",
            "<=",
            32,
            f"{memory} MiB are the budget",
        ),
        Row("states: on disk", last.on_disk / MIB, "MiB", "<=", None, f"of {CLIENTS:,} clients"),
        Row(
            "states: speed of the last quarter over that of the first",
            speeds[1] / speeds[0],
            "×",
            ">=",
            None,
            f"{speeds[1]:.0f} against {speeds[0]:.0f} client updates a second",
        ),
    ]


if __name__ == "__main__":
    print(json.dumps([asdict(one) for one in taken()]))
