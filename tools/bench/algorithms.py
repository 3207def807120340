"""What an algorithm's local training costs beside FedAvg's, and what gradual unfreezing saves: seconds per step.

Every contender is a run of the inline backend; they take turns, a round each, so that all see the same machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from rayfl.algorithms import algorithms
from rayfl.data.batches import BatchSource
from rayfl.engine.events import RoundDone
from rayfl.engine.inline import inline_session
from tools.bench.rounds import NEVER, job_of
from tools.bench.table import Row

CLIENTS = 4
SAMPLES = 500
BATCH = 32
ROUNDS = 24
WARM_UP = 3
"""Rounds that are not counted: in the first, clients have no state yet."""

CHEAP = ("fedprox", "scaffold", "feddyn")
CHEAP_TARGET = 1.05
SHARES = (0.2, 0.4)


def scenario(model: str, algorithm: str, share: float = 0.0) -> dict[str, Any]:
    """The same two clients train in every round: one epoch of 16 steps each."""
    local: dict[str, Any] = {"batch_size": BATCH}
    if share:
        local["unfreeze"] = {"share": share}
    return {
        "name": "bench_algorithms",
        "data": {
            "name": "tools.bench.data:images",
            "clients": CLIENTS,
            "options": {"train": CLIENTS * SAMPLES},
        },
        "model": model,
        "phases": [
            {
                "name": "federated",
                "algorithm": algorithm,
                "rounds": ROUNDS + 1,
                "cohort": {"given": [[0, 1]]},
                "local": local,
            }
        ],
        "evaluation": {"every": NEVER},
    }


def seconds_per_step(contenders: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """Of every contender: the median over its rounds, local training and aggregation together."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    with ExitStack() as stack:
        runs: dict[str, Iterator[RoundDone]] = {}
        for name, tables in contenders.items():
            session = stack.enter_context(inline_session(job_of(tables)[0]))
            runs[name] = (event for event in session.events() if isinstance(event, RoundDone))
        for number in range(ROUNDS):
            for name, run in runs.items():
                started = time.perf_counter()
                steps = next(run).steps or 1
                if number >= WARM_UP:
                    seconds[name].append((time.perf_counter() - started) / steps)
    return {name: statistics.median(values) for name, values in seconds.items()}


def forward_seconds() -> float:
    """One forward pass of LeNet-5 on a batch, in evaluation mode, without gradient."""
    job, model = job_of(scenario("lenet5", "fedavg"))
    x, _ = BatchSource(job.store, torch.device("cpu")).test_batch(slice(0, BATCH))
    model.module.eval()
    seconds = []
    with torch.no_grad():
        for _ in range(200):
            started = time.perf_counter()
            model.module(x)
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def measure() -> list[Row]:
    torch.set_num_threads(1)
    trained = [name for name in algorithms if name != "qfedsgd"]  # which takes no local steps
    steps = seconds_per_step({name: scenario("lenet5", name) for name in trained})
    fedavg = steps["fedavg"]
    targets = dict.fromkeys(CHEAP, CHEAP_TARGET) | {"moon": 1 + 2 * forward_seconds() / fedavg}
    rows = [
        Row(
            f"algorithms: a step of {name} over one of fedavg",
            steps[name] / fedavg,
            "×",
            "<=",
            round(targets[name], 3) if name in targets else None,
            f"{1000 * steps[name]:.2f} against {1000 * fedavg:.2f} ms"
            + (", 2 forward passes more" if name == "moon" else ""),
        )
        for name in trained
        if name != "fedavg"
    ]
    for model in ("lenet5", "cnn_feddyn"):
        thawing = seconds_per_step({str(share): scenario(model, "fedavg", share) for share in (0.0, *SHARES)})
        for share in SHARES:
            detail = f"{1000 * thawing[str(share)]:.2f} against {1000 * thawing['0.0']:.2f} ms a step"
            rows.append(
                Row(
                    f"unfreezing: {model}, share {share:g}",
                    thawing[str(share)] / thawing["0.0"],
                    "×",
                    "<=",
                    None,
                    detail,
                )
            )
    for row in rows:
        print(f"  {row.name}: {row.figure:.3f}", file=sys.stderr, flush=True)
    return rows
