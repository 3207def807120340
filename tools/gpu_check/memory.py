"""A batch that does not fit on the GPU ends the run with one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rayfl.errors import ResourceError
from tools.gpu_check.scene import RESNET18, Device, Finding, Outcome, images, in_process, on_ray

SAMPLES = 200_000
"""Images of the only batch; the first convolution's output alone takes 52 GB."""


def memory(device: Device) -> Iterator[Finding]:
    """Out of memory in this process, and in a worker process on Ray with a share of the GPU."""
    if not device.is_cuda:
        yield Finding("a batch that does not fit", "not checked", None, "needs a GPU")
        return
    runs: dict[str, tuple[Callable[..., Outcome], dict[str, Any]]] = {
        "in one process": (in_process, {"device": device.kind}),
        "on Ray, half a GPU": (on_ray, {"hosts": 1, "gpus_per_host": 0.5}),
    }
    phase = {"rounds": 1, "cohort": 1, "local": {"batch_size": SAMPLES, "lr": 0.01}}
    for where, (run, resources) in runs.items():
        job = device.job(images(1, SAMPLES), phase, model=RESNET18, resources=resources)
        yield refusal(f"a batch that does not fit, {where}", partial(run, job))


def refusal(name: str, run: Callable[[], object]) -> Finding:
    """Checks that a run ends with the message about memory, in one line."""
    try:
        run()
    except ResourceError as error:
        told = str(error)
        explained = "ran out of memory" in told and "smaller local.batch_size" in told
        return Finding(name, "refused", explained and "\n" not in told.strip(), told)
    return Finding(name, "trained", False)
