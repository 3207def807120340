"""Speed on one GPU: fractions of it, stacked clients, a bare PyTorch loop, and pfl-research's CIFAR-10 benchmark."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.engine.events import RoundDone
from rayfl.models.resnet import ResNet18
from tools.bench.naive import LeNet5, Load, Trainer
from tools.bench.parallel import steps_per_second
from tools.gpu_check.scene import (
    LENET5,
    RESNET18,
    RESNET18_OPTIONS,
    Device,
    Finding,
    Outcome,
    environment,
    images,
    in_process,
    on_ray,
    same_bytes,
    seconds_per_round,
)

SHARES = (1, 2, 4)
"""Worker processes that share the GPU."""

NETWORKS: dict[str, tuple[dict[str, Any], Callable[..., nn.Module], dict[str, Any]]] = {
    "LeNet-5": (LENET5, LeNet5, {}),
    "ResNet-18": (RESNET18, ResNet18, {"num_classes": 10, "input_shape": (32, 32, 3), **RESNET18_OPTIONS}),
}
PFL_CLIENTS, PFL_SAMPLES, PFL_COHORT, PFL_ROUNDS = 1000, 50, 50, 1500


def memory_used() -> int | None:
    """MiB in use on the first GPU by all processes, from nvidia-smi; None where there is none."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout)


def shared_run(device: Device, model: dict[str, Any], hosts: int) -> tuple[Outcome, str]:
    """Runs FedAvg in worker processes that share the GPU; returns the memory that they took, too."""
    cohort, rounds = device.sized(20, 4), device.sized(8, 3)
    phase = {"rounds": rounds, "cohort": cohort, "local": {"batch_size": 32, "lr": 0.01}}
    before, peak = memory_used(), [0]

    def look(done: RoundDone) -> None:
        if done.round in (2, rounds - 1) and (used := memory_used()) is not None:
            peak.append(used)

    data = images(cohort, device.sized(512, 64))
    job = device.job(data, phase, model=model, resources=device.shared(hosts))
    outcome = on_ray(job, look)
    return outcome, "no nvidia-smi" if before is None else f"{max(peak) - before} MiB of GPU memory"


def fractions(device: Device) -> Iterator[Finding]:
    """One GPU, whole and shared by two and four worker processes."""
    for name, (model, *_) in NETWORKS.items() if device.is_cuda else [("LeNet-5", NETWORKS["LeNet-5"])]:
        reference: Outcome | None = None
        for hosts in SHARES if device.is_cuda else SHARES[:2]:
            outcome, memory = shared_run(device, model, hosts)
            yield timed(f"{name}: {hosts} x 1/{hosts} GPU", outcome, memory)
            if reference is None:
                reference = outcome
            else:
                yield same_bytes(f"{name}: 1 and {hosts} x 1/{hosts} GPU", reference, outcome)


def timed(name: str, outcome: Outcome, detail: str = "") -> Finding:
    """Seconds per round and steps per second of a run."""
    speed = f"{steps_per_second(outcome.rounds):.0f} client-steps/s"
    return Finding(name, f"{seconds_per_round(outcome.rounds):.3g} s a round", None, f"{speed}, {detail}".strip(", "))


def mps(device: Device) -> Iterator[Finding]:
    """Four worker processes on one GPU through NVIDIA's Multi-Process Service."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or not device.is_cuda:
        yield Finding("MPS", "not checked", None, "no nvidia-cuda-mps-control here" if control is None else "no GPU")
        return
    plain, memory = shared_run(device, LENET5, 4)
    yield timed("LeNet-5: 4 x 1/4 GPU without MPS", plain, memory)
    with (
        tempfile.TemporaryDirectory() as folder,
        environment(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder),
    ):
        subprocess.run([control, "-d"], check=True, timeout=30)
        try:
            outcome, memory = shared_run(device, LENET5, 4)
        finally:
            subprocess.run([control], input="quit\n", text=True, timeout=30, check=False)
    yield timed("LeNet-5: 4 x 1/4 GPU with MPS", outcome, memory)
    yield same_bytes("LeNet-5: with and without MPS", plain, outcome)


def stacked(device: Device) -> Iterator[Finding]:
    """Clients that train together (`numerics.clients_at_once`) against one by one."""
    clients, rounds = device.sized(64, 4), device.sized(4, 2)
    phase = {"rounds": rounds, "cohort": clients, "local": {"batch_size": 32, "lr": 0.01}}

    def run(at_once: int) -> Outcome:
        numerics = {"clients_at_once": at_once}
        return in_process(device.job(images(clients, 256), phase, numerics=numerics))

    alone = run(1)
    yield timed("LeNet-5: one by one", alone)
    for at_once in (8, 32, 64) if device.is_cuda else (4,):
        together = run(at_once)
        ratio = steps_per_second(together.rounds) / steps_per_second(alone.rounds)
        apart = float(np.abs(together.model - alone.model).max() / np.abs(alone.model).max())
        detail = f"{steps_per_second(together.rounds):.0f} client-steps/s, parameters differ by {apart:.2g} at most"
        yield Finding(f"LeNet-5: {at_once} clients at once over one by one", f"{ratio:.2f} ×", apart < 1e-3, detail)


def bare(device: Device) -> Iterator[Finding]:
    """One worker against a plain PyTorch loop in the same process, with the same numerics and with PyTorch's own."""
    load = Load(clients=device.sized(20, 2), samples=device.sized(512, 64), batch_size=32, lr=0.01)
    phase = {"rounds": device.sized(6, 2), "cohort": load.clients, "local": {"batch_size": 32, "lr": load.lr}}
    names = NETWORKS if device.is_cuda else ("LeNet-5",)
    ours = {}
    for name in names:
        job = device.job(images(load.clients, load.samples), phase, model=NETWORKS[name][0])
        ours[name] = steps_per_second(in_process(job).rounds)
    for exact in (True, False):
        torch.backends.cudnn.deterministic = exact
        torch.backends.cudnn.allow_tf32 = not exact
        for name in names:
            _, network, options = NETWORKS[name]
            trainer = Trainer(load, network(**options), torch.device(device.kind))
            trainer.train_client(0)
            speed = trainer.train_for(device.sized(4, 1))
            numerics = "float32, deterministic" if exact else "PyTorch's defaults (TF32 convolutions)"
            detail = f"rayfl {ours[name]:.0f}, PyTorch {speed:.0f} client-steps/s with {numerics}"
            yield Finding(f"{name}: rayfl over a bare loop", f"{ours[name] / speed:.2f} ×", None, detail)


def pfl(device: Device) -> Iterator[Finding]:
    """The CIFAR-10 IID benchmark of pfl-research, on generated images: seconds a round, with a test every 10 rounds.

    1 000 clients of 50 images, 50 a round, one epoch in batches of 10, the CNN with dropout (`simple_cnn`), 10 000 test
    images; `benchmarks/image_classification/configs/baseline.yaml` in apple/pfl-research.
    """
    cohort, test = device.sized(PFL_COHORT, 5), device.sized(10_000, 100)
    phase = {"rounds": device.sized(31, 3), "cohort": cohort, "local": {"epochs": 1, "batch_size": 10, "lr": 0.1}}
    data = images(PFL_CLIENTS, PFL_SAMPLES, test)
    settings: dict[str, Any] = {"model": {"name": "cnn_fashion_mnist_large"}, "evaluation": {"every": 10}}
    yield pfl_row("in one process", in_process(device.job(data, phase, **settings)))
    for hosts in (1, 5) if device.is_cuda else ():
        job = device.job(data, phase, **settings, resources=device.shared(hosts))
        yield pfl_row(f"on Ray, {hosts} x 1/{hosts} GPU", on_ray(job))


def pfl_row(where: str, outcome: Outcome) -> Finding:
    minutes = seconds_per_round(outcome.rounds) * PFL_ROUNDS / 60
    return timed(f"pfl's CIFAR-10, {where}", outcome, f"generated images, {minutes:.1f} min for {PFL_ROUNDS} rounds")
