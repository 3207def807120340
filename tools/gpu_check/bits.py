"""Same bits on the GPU, twice and on one host and on three; and what the CPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rayfl.engine.events import Evaluated
from rayfl.engine.exact_sum import ExactSum, combine
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import RayflError
from tools.gpu_check.scene import LENET5, RESNET18, Device, Finding, differing, images, in_process, same_bytes

DROPOUT = {"name": "cnn_fashion_mnist_large"}
AUGMENT = ["flip", {"name": "crop", "padding": 4}]
LOCAL = {"epochs": 1, "batch_size": 32, "lr": 0.05, "momentum": 0.9}
CASES: dict[str, dict[str, Any]] = {
    "LeNet-5, FedAvg": {"model": LENET5},
    "ResNet-18, group norm, SCAFFOLD": {"model": RESNET18, "phase": {"algorithm": "scaffold"}},
    "ResNet-8, batch norm, relay": {"model": {"name": "resnet8"}, "phase": {"schedule": "relay"}},
    "CNN, dropout, flips and crops": {"model": DROPOUT, "augment": AUGMENT},
}
ON_CPU = ("LeNet-5, FedAvg", "ResNet-8, batch norm, relay")

TOLERANCE = 1e-3
"""Relative difference of the first test losses on CPU and GPU; rounding grows from step to step."""

NO_CUDA = "needs a GPU"


class OneWithoutDeterministicKernel(nn.Module):
    """A small network with adaptive max pooling, whose backward pass on CUDA adds in any order."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8 * 7 * 7, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(functional.adaptive_max_pool2d(self.conv(x), 7).flatten(1))
        return logits


def prepared(device: Device, case: dict[str, Any]) -> RunPlan:
    """Prepares a case of `CASES`."""
    local = LOCAL | ({"momentum": 0.0} if "algorithm" in case.get("phase", {}) else {})
    phase = {"rounds": device.sized(3, 2), "cohort": device.sized(9, 3), "local": local} | case.get("phase", {})
    data = images(12, device.sized(80, 16)) | {"augment": case.get("augment", [])}
    return device.job(data, phase, model=case["model"], resources={"device": device.kind, "relay": "spread"})


def bits(device: Device) -> Iterator[Finding]:
    """The same run twice, on one host and on three."""
    for name, case in CASES.items() if device.is_cuda else [(name, CASES[name]) for name in ON_CPU]:
        job = prepared(device, case)
        first = in_process(job)
        yield same_bytes(f"{name}: twice", first, in_process(job), f"{first.model.size} parameters")
        yield same_bytes(f"{name}: 1 and 3 hosts", first, in_process(job, 3))


def deterministic(device: Device) -> Iterator[Finding]:
    """`numerics.deterministic`: a layer without a deterministic kernel is refused, and allowed where asked for."""
    if not device.is_cuda:
        yield Finding("a layer without a deterministic kernel", "not checked", None, NO_CUDA)
        return
    model = {"name": f"{__name__}:OneWithoutDeterministicKernel"}
    phase = {"rounds": 2, "cohort": 4, "local": LOCAL}
    refused = device.job(images(4, 64), phase, model=model)
    try:
        in_process(refused)
        yield Finding("a layer without a deterministic kernel is refused", "trained", False)
    except RayflError as error:
        explained = "is not deterministic on CUDA" in str(error) and "\n" not in str(error)
        yield Finding("a layer without a deterministic kernel is refused", "refused", explained, str(error))
    allowed = device.job(images(4, 64), phase, model=model, numerics={"deterministic": False})
    one, other = in_process(allowed), in_process(allowed)
    name = "the same with numerics.deterministic=false"
    yield Finding(name, "trained", bool(np.isfinite(one.model).all()), f"twice: {differing(one.model, other.model)}")


def after_other_work(device: Device) -> Iterator[Finding]:
    """A run in a process that has used the GPU before, as in a notebook."""
    x = torch.randn(256, 256, device=device.kind, requires_grad=True)
    (x @ x).sum().backward()  # type: ignore[no-untyped-call]
    job = device.job(images(4, 32), {"rounds": 2, "cohort": 4, "local": LOCAL})
    yield same_bytes("LeNet-5 after a matrix product in the same process: twice", in_process(job), in_process(job))


def cpu(device: Device) -> Iterator[Finding]:
    """Losses of a short run on CPU and GPU, and exact sums."""
    losses = []
    local = {"epochs": 2, "batch_size": 16, "lr": 0.1}
    phase = {"rounds": device.sized(6, 2), "cohort": 1.0, "local": local}
    for kind in ("cpu", device.kind):
        data = {"name": "handwriting", "clients": 8}
        job = Device(kind).job(data, phase, model={"name": "cnn_femnist"}, evaluation={"every": 2})
        scores = [event.scores["test_loss"] for event in in_process(job, 2).events if isinstance(event, Evaluated)]
        losses.append(np.array(scores, dtype=np.float64))
    apart = float(abs(losses[0][0] / losses[1][0] - 1))
    written = ", ".join(f"{loss:.4f} and {other:.4f}" for loss, other in zip(*losses, strict=True))
    yield Finding(
        "losses on CPU and GPU: relative difference after two rounds", f"{apart:.2g}", apart <= TOLERANCE, written
    )
    yield from sums(device)


def sums(device: Device) -> Iterator[Finding]:
    """Exact sums of the same vectors on CPU and GPU."""
    generator = torch.Generator().manual_seed(0)
    for scale in (1.0, 1e9, 1e30):
        vectors = [torch.randn(1_000_003, generator=generator) * scale for _ in range(4)]
        totals = []
        for kind in ("cpu", device.kind):
            total = ExactSum("delta", 32)
            for weight, vector in enumerate(vectors, start=1):
                total.add(vector.to(kind), weight / 3)
            totals.append(combine("delta", [total.partial()] * 3, 32))
        different = int(np.count_nonzero(totals[0] != totals[1]))
        name = f"sums of values about {scale:g} on CPU and GPU"
        yield Finding(name, "same" if not different else f"{different} differ", not different, "1 000 003 values")
