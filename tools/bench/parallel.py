"""Parallel rounds compared with plain PyTorch: client-steps per second, in alternating repetitions.

Also measures the processor time of each kind of process per round, which other programs affect less.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from rayfl.engine.events import RoundDone
from rayfl.studies.scale.processes import ROLES, processor_seconds
from tools.bench.naive import Load, naive_limit
from tools.bench.rounds import NEVER, job_of, run_rounds
from tools.bench.table import Row

REPETITIONS = 5
ROUNDS = 30
COHORT = 10
HOSTS = 2
NAIVE_SECONDS = 9.0
LOAD = Load(clients=100, samples=500, batch_size=32, lr=0.01)


def scenario(rounds: int) -> dict[str, Any]:
    """Returns a scenario: FedAvg with LeNet-5 on images of 32 x 32 x 3, one epoch per client update."""
    return {
        "name": "bench_parallel",
        "data": {
            "name": "tools.bench.data:images",
            "clients": LOAD.clients,
            "options": {"train": LOAD.clients * LOAD.samples},
        },
        "model": "lenet5",
        "phases": [
            {
                "name": "federated",
                "rounds": rounds,
                "cohort": COHORT,
                "local": {"epochs": 1, "batch_size": LOAD.batch_size, "lr": LOAD.lr},
            }
        ],
        "evaluation": {"every": NEVER},
        "resources": {"hosts": HOSTS},
    }


def steps_per_second(rounds: Sequence[RoundDone]) -> float:
    """Steps per second in all rounds except the first, which includes one-time work."""
    return sum(done.steps for done in rounds[1:]) / (rounds[-1].seconds - rounds[0].seconds)


def measure() -> list[Row]:
    job, _ = job_of(scenario(ROUNDS))
    limits, speeds, taken = [], [], []
    for repetition in range(REPETITIONS):
        limits.append(naive_limit(HOSTS, LOAD, NAIVE_SECONDS))
        at_end_of: dict[int, dict[str, float]] = {}

        def account(done: RoundDone, at_end_of: dict[int, dict[str, float]] = at_end_of) -> None:
            if done.round in (1, ROUNDS):
                at_end_of[done.round] = processor_seconds()

        speeds.append(steps_per_second(run_rounds(job, account)))
        taken.append({part: at_end_of[ROUNDS][part] - at_end_of[1][part] for part in ROLES})
        print(
            f"  {repetition + 1}/{REPETITIONS}: naive {limits[-1]:.0f}, rayfl {speeds[-1]:.0f} client-steps/s",
            file=sys.stderr,
            flush=True,
        )
    limit, speed = statistics.median(limits), statistics.median(speeds)
    detail = f"medians of {REPETITIONS}: rayfl {speed:.0f}, naive {limit:.0f} client-steps/s"
    return [Row("parallel: speed over the naive limit", speed / limit, "×", ">=", 1.1, detail), *processor_rows(taken)]


def processor_rows(taken: Sequence[dict[str, float]]) -> list[Row]:
    """Returns the processor time of each kind of process per round, the median over the repetitions.

    Args:
        taken: Seconds of all rounds except the first, by kind of process, for every repetition.
    """
    rounds = ROUNDS - 1
    medians = {part: 1e3 * statistics.median(one[part] for one in taken) / rounds for part in ROLES}
    whole = sum(medians.values())
    return [
        Row(f"parallel: processor time of a round, {part}", ms, "ms", "<=", None, f"{ms / whole:.1%} of all")
        for part, ms in medians.items()
    ]
