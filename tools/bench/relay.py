"""The cost of a relay hop beyond training, between worker processes and within one."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from rayfl.algorithms.construction import build_algorithm
from rayfl.data.batches import BatchSource
from rayfl.engine.client_updates import ClientUpdates, UpdateErrors
from rayfl.engine.device import TorchGenerators
from rayfl.engine.events import RoundDone
from rayfl.engine.executors.executor import ClientSamples
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.local.context import ClientContext, ClientFacts, ClientNetwork, ClientStreams, UpdatePlan
from tools.bench.naive import RAY_NICENESS
from tools.bench.rounds import NEVER, job_of, run_rounds
from tools.bench.table import Row

ROUNDS = 30
HOPS = 100
HOSTS = 2


def scenario() -> dict[str, Any]:
    """Returns two relays of tiny client updates, one step on one image each, which makes the overhead visible.

    Client c lives on worker c % 2: the first relay changes worker at every hop, the second never does.
    """
    tiny = {"schedule": "relay", "rounds": ROUNDS, "local": {"steps": 1, "batch_size": 1, "lr": 0.001}}
    across, within = list(range(HOPS)), list(range(0, 2 * HOPS, 2))
    return {
        "name": "bench_relay",
        "data": {"name": "tools.bench.data:images", "clients": 2 * HOPS, "options": {"train": 20 * HOPS, "test": 10}},
        "model": "lenet5",
        "phases": [
            {"name": "across", "cohort": {"explicit": [across]}, **tiny},
            {"name": "within", "cohort": {"explicit": [within]}, **tiny},
        ],
        "evaluation": {"every": NEVER},
        "resources": {"hosts": HOSTS, "relay": "spread"},
    }


def training_seconds() -> float:
    """Returns the seconds per update of the same local training in this process, the median of the passes."""
    job, model = job_of(scenario())
    torch.set_num_threads(job.scenario.numerics.threads)
    cpu, local = torch.device("cpu"), job.scenario.phases[0].local
    source = BatchSource(job.result.store, cpu)
    algorithm, received = build_algorithm(job.scenario.phases[0]), model.vector.clone()
    generators, task = TorchGenerators(cpu), job.result.task
    updates = ClientUpdates([OneByOne(model, ClientSamples(source, cpu, task), task, generators)], generators)
    network = ClientNetwork(model, model.buffers.clone(), lambda seed: received)
    plan, errors = UpdatePlan(local, local.lr), UpdateErrors(0, "bench", 1)

    def context(client: int, round: int) -> ClientContext:
        samples, streams = source.num_samples(client), ClientStreams(job.scenario.seed, 0, round, 0, client)
        return ClientContext(plan, ClientFacts(client, samples, samples / source.mean_samples, streams), network)

    seconds = []
    for number in range(1, ROUNDS + 1):
        start = time.perf_counter()
        for client in range(HOPS):
            updates.run([context(client, number)], lambda client: algorithm.relay(client, received), errors)
        seconds.append((time.perf_counter() - start) / HOPS)
    return statistics.median(seconds)


def hop_seconds(rounds: Sequence[RoundDone], phase: str) -> float:
    """Returns the seconds per client update of one relay, including the hop: the median of the rounds."""
    times = [done.seconds for done in rounds if done.phase == phase]
    return statistics.median(later - earlier for earlier, later in pairwise(times)) / HOPS


def measure() -> list[Row]:
    command = [sys.executable, "-m", "tools.bench.relay"]
    training = float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    job, _ = job_of(scenario())
    rounds = run_rounds(job)
    rows = []
    for phase, target, what in (("across", 5.0, "from host to host"), ("within", 0.5, "on one host")):
        update = hop_seconds(rounds, phase)
        detail = f"update and hop {1e3 * update:.2f} ms, training alone {1e3 * training:.2f} ms"
        rows.append(Row(f"relay: a hop {what}", 1e3 * (update - training), "ms", "<=", target, detail))
    return rows


if __name__ == "__main__":
    os.nice(RAY_NICENESS)
    print(training_seconds())
