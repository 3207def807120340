"""What a step of DP-SGD costs beside one without, and beside a plain loop with Opacus: seconds, and memory.

The contenders alternate round by round, and have the network, the batch size and the bounds in common. rayfl's batches
are drawn (Poisson), so that they have the loop's size only on average.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rayfl.data.batches import BatchSource
from rayfl.engine.memory import keep_freed_memory
from rayfl.models.flat import FlatModel
from tools.bench.algorithms import BATCH, SAMPLES, one_round_each, scenario, seconds_each
from tools.bench.rounds import job_of
from tools.bench.table import Row

PRIVATE = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "physical_batch_size": 64}
MODELS = ("lenet5", "cnn_femnist")


def opacus_loop(tables: dict[str, Any]) -> Callable[[], int]:
    """A call that trains two clients for an epoch each by Opacus' own wrapper and optimizer; returns the steps."""
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


def measure() -> list[Row]:
    torch.set_num_threads(1)
    keep_freed_memory()  # as every host does
    # Opacus' own, of layers that read the inputs themselves
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    rows = []
    for model in MODELS:
        plain = scenario(model, "fedavg")
        private = scenario(model, "fedavg", {"local": {"dp": PRIVATE}})
        with one_round_each({"plain": plain, "private": private}) as rounds:
            steps = seconds_each(rounds | {"opacus": opacus_loop(plain)})
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
        ]
    for row in rows:
        print(f"  {row.name}: {row.figure:.3f}", file=sys.stderr, flush=True)
    return rows
