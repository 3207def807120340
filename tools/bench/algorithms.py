"""The cost of local training with each algorithm relative to FedAvg, and the savings of gradual unfreezing.

Every contender is a run of the inline backend; the runs alternate round by round, so all of them see the same machine.
Times are processor seconds of the only thread, which other programs affect less than wall-clock time.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import torch

from rayfl.algorithms import algorithms
from rayfl.backends.inline import inline_session
from rayfl.data.batches import BatchSource
from rayfl.engine.events import RoundDone
from rayfl.engine.memory import keep_freed_memory
from tools.bench.rounds import NEVER, job_of
from tools.bench.table import Row

CLIENTS = 4
SAMPLES = 500
BATCH = 32
ROUNDS = 24
WARM_UP = 3
"""Rounds that do not count: in the first one, clients have no state yet."""

CHEAP = ("fedprox", "scaffold", "feddyn")
CHEAP_TARGET = 1.05
FREEZING: dict[str, dict[str, Any]] = {
    "nothing frozen": {},
    "share 0.4": {"local": {"unfreeze": {"share": 0.4}}},
    "share 1": {"local": {"unfreeze": {"share": 1.0}}},
    "only the first of 5 modules training": {"train": ["conv1"]},
}


def scenario(model: str, algorithm: str, phase: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Returns a scenario in which the same two clients train in every round: one epoch of 16 steps each."""
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
                "cohort": {"explicit": [[0, 1]]},
                **phase,
                "local": {"batch_size": BATCH, **phase.get("local", {})},
            }
        ],
        "evaluation": {"every": NEVER},
    }


SUPPORT = 400
"""Support samples of a client, with CoPreFL's default share of queries."""


SHORTER = "13 support steps and a query pass against 16 steps"


def round_over_fedavgs(steps: Mapping[str, float]) -> tuple[float, float]:
    """Returns the time of a CoPreFL round over FedAvg, and its target: support steps, a query pass, plus 10 %."""
    support, whole = math.ceil(SUPPORT / BATCH), math.ceil(SAMPLES / BATCH)
    target = 1.1 * (support + (SAMPLES - SUPPORT) / BATCH) / whole
    return steps["coprefl"] * support / (steps["fedavg"] * whole), target


def seconds_each(contenders: Mapping[str, Callable[[], int]]) -> dict[str, float]:
    """Returns the median seconds per step or pass of every contender; each call returns how many it made."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS):
        for name, run in contenders.items():
            started = time.process_time()
            done = run()
            if number >= WARM_UP:
                seconds[name].append((time.process_time() - started) / done)
    return {name: statistics.median(values) for name, values in seconds.items()}


@contextmanager
def one_round_each(scenarios: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Callable[[], int]]]:
    """Yields, for every scenario, a call that runs its next round with aggregation and returns its steps."""

    def next_of(rounds: Iterator[RoundDone]) -> Callable[[], int]:
        return lambda: next(rounds).steps

    with ExitStack() as stack:
        sessions = {name: stack.enter_context(inline_session(job_of(tables)[0])) for name, tables in scenarios.items()}
        yield {
            name: next_of(event for event in session.events() if isinstance(event, RoundDone))
            for name, session in sessions.items()
        }


def forward_passes() -> Callable[[], int]:
    """Returns a call that runs as many forward passes of LeNet-5 in evaluation mode as a round has steps."""
    job, model = job_of(scenario("lenet5", "fedavg"))
    x, _ = BatchSource(job.result.store, torch.device("cpu")).test_batch(slice(0, BATCH))
    passes = 2 * math.ceil(SAMPLES / BATCH)
    model.module.eval()

    def run() -> int:
        with torch.no_grad():
            for _ in range(passes):
                model.module(x)
        return passes

    return run


def measure() -> list[Row]:
    torch.set_num_threads(1)
    keep_freed_memory()  # as every worker process does
    built = {name: algorithms.resolve(name)() for name in algorithms}
    # the others have no such steps, or need batch norm
    trained = [
        name
        for name, algorithm in built.items()
        if algorithm.local_keys() is None and "batch_norm" not in algorithm.requirements()
    ]
    with one_round_each({name: scenario("lenet5", name) for name in trained}) as rounds:
        steps = seconds_each(rounds | {"forward": forward_passes()})
    fedavg = steps["fedavg"]
    targets = dict.fromkeys(CHEAP, CHEAP_TARGET) | {"moon": 1 + 2 * steps["forward"] / fedavg}
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
        if name not in ("fedavg", "coprefl")
    ]
    figure, target = round_over_fedavgs(steps)
    rows.append(Row("algorithms: a round of coprefl over one of fedavg", figure, "×", "<=", round(target, 3), SHORTER))
    for model in ("lenet5", "cnn_feddyn"):
        with one_round_each({name: scenario(model, "fedavg", phase) for name, phase in FREEZING.items()}) as rounds:
            thawing = seconds_each(rounds)
        whole = thawing["nothing frozen"]
        rows += [
            Row(
                f"unfreezing: a step of {model}, {name}, over one with nothing frozen",
                thawing[name] / whole,
                "×",
                "<=",
                None,
                f"{1000 * thawing[name]:.2f} against {1000 * whole:.2f} ms",
            )
            for name in FREEZING
            if name != "nothing frozen"
        ]
    for row in rows:
        print(f"  {row.name}: {row.figure:.3f}", file=sys.stderr, flush=True)
    return rows
