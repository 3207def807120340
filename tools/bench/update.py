"""The cost of a client update beyond its step: one-step updates of a worker, compared with a plain PyTorch loop.

Both train the same network on the same samples in this process, in short alternating turns, measured in processor
seconds. So both see the same machine, and medians over pairs of turns exclude disturbances by other programs.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rayfl.algorithms.construction import build_algorithm
from rayfl.algorithms.exchange import Exchange
from rayfl.backends.inline import inline_session
from rayfl.data.batches import BatchSource
from rayfl.engine.host import Host
from rayfl.engine.memory import keep_freed_memory
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.flat import FlatModel
from tools.bench.rounds import NEVER, job_of
from tools.bench.table import Row

PAIRS = 400
WARM_UP = 40
"""Pairs that do not count."""

TURN = 5
"""Updates or steps per turn: as many as a worker in *parallel* has per round."""

CLIENTS = 20
SAMPLES = 32
LENET5_TARGET = 0.4


@dataclass(frozen=True)
class Problem:
    """A network, and data from `tools.bench.data`."""

    model: Mapping[str, Any]
    data: Mapping[str, Any]


PROBLEMS = {
    "lenet5": Problem({"name": "lenet5"}, {"name": "tools.bench.data:images"}),
    "tiny MLP": Problem({"name": "mlp", "hidden": [16]}, {"name": "tools.bench.data:points"}),
}


def scenario(problem: Problem) -> dict[str, Any]:
    """Returns a scenario in which clients have one batch and train for one epoch."""
    return {
        "name": "bench_update",
        "data": {**problem.data, "clients": CLIENTS, "options": {"train": CLIENTS * SAMPLES}},
        "model": dict(problem.model),
        "phases": [{"name": "federated", "cohort": TURN, "rounds": WARM_UP + PAIRS, "local": {"batch_size": SAMPLES}}],
        "evaluation": {"every": NEVER},
    }


def updates(job: RunPlan, model: FlatModel) -> Callable[[int], None]:
    """Returns a call that runs the updates of a round as a worker does, from the sent vector to the sums."""
    host = Host(0, job)
    algorithm: Any = build_algorithm(job.scenario.phases[0])
    exchange = Exchange(algorithm.client_update, model.vector.numpy().copy())

    def run(number: int) -> None:
        groups = [[(number * TURN + place) % CLIENTS] for place in range(TURN)]
        host.answer(RoundIndex(0, number + 1, number + 1), groups, exchange)

    return run


def bare_steps(job: RunPlan, model: FlatModel) -> Callable[[int], None]:
    """Returns a call that runs as many steps of a plain loop: inputs are floats, batches are indexed."""
    source, module = BatchSource(job.result.store, torch.device("cpu")), copy.deepcopy(model.module)
    x, y = source.batch("train", np.arange(CLIENTS * SAMPLES))
    optimizer = torch.optim.SGD(module.parameters(), lr=job.scenario.phases[0].local.lr)

    def run(number: int) -> None:
        for rows in torch.randperm(len(y))[: TURN * SAMPLES].split(SAMPLES):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return run


def seconds_of_pairs(update: Callable[[int], None], bare: Callable[[int], None], pairs: int = PAIRS) -> np.ndarray:
    """[pairs, 2]: processor seconds of one update and of one bare step; they alternate in going first."""
    seconds = np.empty((WARM_UP + pairs, 2))
    for number, pair in enumerate(seconds):
        for place, run in ((0, update), (1, bare))[:: 1 if number % 2 else -1]:
            started = time.process_time()
            run(number)
            pair[place] = (time.process_time() - started) / TURN
    return seconds[WARM_UP:]


def rows_of(name: str, seconds: np.ndarray, target: float | None) -> list[Row]:
    """Returns rows for the ratio and the difference, each the median over the pairs."""
    update, bare = 1e3 * np.median(seconds, axis=0)
    low, ratio, high = np.quantile(seconds[:, 0] / seconds[:, 1], (0.25, 0.5, 0.75))
    least, more, most = 1e3 * np.quantile(seconds[:, 0] - seconds[:, 1], (0.25, 0.5, 0.75))
    detail = f"quartiles of the pairs {low:.2f} and {high:.2f}; {update:.3f} against {bare:.3f} ms"
    quartiles = f"quartiles of the pairs {least:.3f} and {most:.3f} ms"
    return [
        Row(f"update: one step of {name} over a bare step", float(ratio), "×", "<=", None, detail),
        Row(f"update: {name}, beyond a bare step", float(more), "ms", "<=", target, quartiles),
    ]


def measure() -> list[Row]:
    keep_freed_memory()  # as in a worker process; the bare loop benefits too
    rows = []
    for name, problem in PROBLEMS.items():
        job, model = job_of(scenario(problem))
        with inline_session(job):  # restores PyTorch's settings, which the host changes
            seconds = seconds_of_pairs(updates(job, model), bare_steps(job, model))
        rows += rows_of(name, seconds, LENET5_TARGET if name == "lenet5" else None)
    return rows
