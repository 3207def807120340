"""Time and memory of a DP-SGD step compared with a step without privacy and with a plain Opacus loop.

The contenders alternate round by round and share network, batch size and bounds. rayfl draws batches by Poisson
sampling, so their size equals that of the loop only on average.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from rayfl.data.batches import BatchSource
from rayfl.engine.memory import keep_freed_memory
from rayfl.models.flat import FlatModel
from tools.bench.algorithms import BATCH, SAMPLES, one_round_each, scenario, seconds_each
from tools.bench.processes import growth
from tools.bench.rounds import job_of
from tools.bench.table import Row

PRIVATE = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "physical_batch_size": 64}
MODELS = ("lenet5", "cnn_femnist")
CONTENDERS = ("plain", "private", "opacus")
"""Contenders whose memory is measured."""
MIB = 2**20


def opacus_loop(tables: dict[str, Any]) -> Callable[[], int]:
    """Returns a call that trains two clients for an epoch each with Opacus, and returns the steps."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    job, model = job_of(tables | {"numerics": {"kernels": "plain"}})
    source = BatchSource(job.result.store, torch.device("cpu"))
    network: nn.Module = FlatModel(model.module, torch.device("cpu"), channels_last=False).module
    wrapped = GradSampleModule(network.train())
    steps = math.ceil(SAMPLES / BATCH)

    def run() -> int:
        for client in (0, 1):
            optimizer = DPOptimizer(
                torch.optim.SGD(wrapped.parameters(), lr=0.01),
                noise_multiplier=PRIVATE["noise_multiplier"],
                max_grad_norm=PRIVATE["max_grad_norm"],
                expected_batch_size=BATCH,
            )
            for x, y in source.plain_batches(source.shard(client), BATCH):
                nn.functional.cross_entropy(wrapped(x), y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                optimizer.zero_grad()
        return 2 * steps

    return run


@contextmanager
def contenders(model: str, dp: dict[str, Any]) -> Iterator[dict[str, Callable[[], int]]]:
    """Yields calls by name that train two clients for an epoch each and return the number of steps."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as every worker process does
    # from Opacus, about layers that read the inputs themselves
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    plain = scenario(model, "fedavg")
    private, secure = (scenario(model, "fedavg", {"local": {"dp": dp | more}}) for more in ({}, {"secure": True}))
    with one_round_each({"plain": plain, "private": private, "secure": secure}) as rounds:
        yield rounds | {"opacus": opacus_loop(plain)}


def peak(model: str, contender: str) -> int:
    """Returns the most bytes that training of a contender adds to the resident memory of this process.

    No more samples are in memory at once than in a batch of the plain loop.
    """
    with contenders(model, PRIVATE | {"physical_batch_size": BATCH}) as runs:
        return growth(runs[contender])


def peak_in_fresh_process(model: str, contender: str) -> int:
    command = [sys.executable, "-m", "tools.bench.privacy", model, contender]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


def measure() -> list[Row]:
    rows = []
    for model in MODELS:
        with contenders(model, PRIVATE) as runs:
            steps = seconds_each(runs)
        memory = {name: peak_in_fresh_process(model, name) for name in CONTENDERS}
        rows += [
            Row(
                f"privacy: a private step of {model} over one of a plain Opacus loop",
                steps["private"] / steps["opacus"],
                "×",
                "<=",
                1.0,
                f"{1000 * steps['private']:.2f} against {1000 * steps['opacus']:.2f} ms",
            ),
            Row(
                f"privacy: a private step of {model} over one without",
                steps["private"] / steps["plain"],
                "×",
                "<=",
                None,
                f"{1000 * steps['private']:.2f} against {1000 * steps['plain']:.2f} ms",
            ),
            Row(
                f"privacy: a secure step of {model} over a private one",
                steps["secure"] / steps["private"],
                "×",
                "<=",
                3.0,
                f"{1000 * steps['secure']:.2f} against {1000 * steps['private']:.2f} ms",
            ),
            Row(
                f"privacy: memory of private steps of {model} over that of a plain Opacus loop",
                memory["private"] / memory["opacus"],
                "×",
                "<=",
                1.0,
                f"{memory['private'] / MIB:.0f} against {memory['opacus'] / MIB:.0f} MiB; "
                f"{memory['plain'] / MIB:.0f} without privacy",
            ),
        ]
    for row in rows:
        print(f"  {row.name}: {row.figure:.3f}", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    print(json.dumps(peak(sys.argv[1], sys.argv[2])))
