"""The cost of idle clients: start-up time, and memory of driver, scheduler and server.

The same samples belong to few or to very many clients, so only the number of clients differs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.engine.events import RoundDone
from tools.bench.processes import anonymous_bytes, descendants
from tools.bench.rounds import NEVER, job_of
from tools.bench.table import Row

FEW, MANY = 100, 100_000
SAMPLES = 2 * MANY
REPETITIONS = 3
ACTORS = {"scheduler": "ray::SchedulerActor", "server": "ray::ServerActor"}


@dataclass(frozen=True)
class Cost:
    """Seconds from the tables of a scenario to its first committed round, and anonymous bytes by process."""

    start_s: float
    memory: dict[str, int]


def scenario(clients: int) -> dict[str, Any]:
    """Returns a scenario with a linear model and four numbers per sample: training and data cost next to nothing."""
    return {
        "name": "bench_clients",
        "data": {
            "name": "tools.bench.data:points",
            "clients": clients,
            "partition": "iid",
            "options": {"train": SAMPLES},
        },
        "model": {"name": "torch.nn:Linear", "in_features": 4, "out_features": 2},
        "phases": [{"name": "federated", "rounds": 3, "cohort": 10, "local": {"steps": 1}}],
        "evaluation": {"every": NEVER},
        "resources": {"hosts": 2},
    }


def cost(clients: int) -> Cost:
    """Runs the scenario with this process as driver, and reads the memory of all processes after the last round."""
    start = time.perf_counter()
    job, _ = job_of(scenario(clients))
    with ray_session(job, None, RayLog(Path(os.devnull))) as session:
        events = session.events()
        next(event for event in events if isinstance(event, RoundDone))
        seconds = time.perf_counter() - start
        list(events)
        memory = {"driver": anonymous_bytes("self")}
        running = descendants()
        for name, title in ACTORS.items():
            (pid,) = [pid for pid, command in running.items() if command.startswith(title)]
            memory[name] = anonymous_bytes(pid)
    return Cost(seconds, memory)


def cost_in_fresh_process(clients: int) -> Cost:
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.clients", str(clients)], stdout=subprocess.PIPE, text=True, check=True
    )
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def measure() -> list[Row]:
    few, many = [], []
    for _ in range(REPETITIONS):
        few.append(cost_in_fresh_process(FEW))
        many.append(cost_in_fresh_process(MANY))
    seconds_few, seconds_many = (statistics.median(run.start_s for run in runs) for runs in (few, many))
    rows = [
        Row(
            f"clients: start with {MANY:,} over start with {FEW:,}",
            seconds_many - seconds_few,
            "s",
            "<=",
            10,
            f"medians of {REPETITIONS}: {seconds_many:.1f} s and {seconds_few:.1f} s",
        )
    ]
    for name in few[0].memory:
        bytes_few, bytes_many = (statistics.median(run.memory[name] for run in runs) for runs in (few, many))
        rows.append(
            Row(
                f"clients: an idle client in the {name}",
                (bytes_many - bytes_few) / (MANY - FEW),
                "bytes",
                "<=",
                200,
                f"{bytes_many / 2**20:.1f} MiB and {bytes_few / 2**20:.1f} MiB",
            )
        )
    return rows


if __name__ == "__main__":
    print(json.dumps(asdict(cost(int(sys.argv[1])))))
