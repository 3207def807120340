"""What the sections share: findings, scenarios of generated images, and ways to run them on the device."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.backends.inline import InlineBackend
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.engine.device import settings_restored
from rayfl.engine.events import Event, RoundDone
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.models.tensors import split
from tools.bench.rounds import NEVER, job_of

LENET5: dict[str, Any] = {"name": "lenet5"}
RESNET18_OPTIONS: dict[str, Any] = {"stem": "cifar", "norm": "group"}
RESNET18 = {"name": "resnet18", **RESNET18_OPTIONS}


@dataclass(frozen=True)
class Finding:
    """One line of the result.

    Attributes:
        name: What was checked or measured.
        figure: The result, with its unit.
        holds: Whether a promise holds; None for a measurement without a target.
        detail: The values that the figure was computed from, or the cause of an error.
    """

    name: str
    figure: str
    holds: bool | None = None
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        model: The committed model's vector.
        events: The run's events.
    """

    model: np.ndarray
    events: Sequence[Event]

    @property
    def rounds(self) -> list[RoundDone]:
        return [event for event in self.events if isinstance(event, RoundDone)]

    @property
    def digest(self) -> str:
        """The first digits of the SHA-256 of the model's bytes."""
        return hashlib.sha256(self.model.tobytes()).hexdigest()[:12]


@dataclass(frozen=True)
class Device:
    """Where the checks run: `cuda`, or `cpu`, which runs them small, to test them where there is no GPU."""

    kind: str

    @property
    def is_cuda(self) -> bool:
        return self.kind == "cuda"

    def sized(self, on_cuda: int, on_cpu: int) -> int:
        """Chooses a number of rounds, clients or samples."""
        return on_cuda if self.is_cuda else on_cpu

    def job(self, data: dict[str, Any], phase: dict[str, Any], **tables: Any) -> RunPlan:
        """Prepares a run of one phase in one process: FedAvg with LeNet-5, unless the tables say otherwise."""
        scenario: dict[str, Any] = {
            "name": "gpu_check",
            "data": data,
            "model": LENET5,
            "phases": [{"name": "federated", **phase}],
            "evaluation": {"every": NEVER},
            "resources": {"device": self.kind},
        }
        job, _ = job_of(scenario | tables)
        return job

    def shared(self, hosts: int) -> dict[str, Any]:
        """Returns [resources] for worker processes on Ray that share one GPU."""
        return {"hosts": hosts, "gpus_per_host": 1 / hosts if self.is_cuda else 0}


def images(clients: int, samples: int, test: int = 100) -> dict[str, Any]:
    """Returns [data]: generated images of CIFAR's shape, as many for each client."""
    options = {"train": clients * samples, "test": test}
    return {"name": "tools.bench.data:images", "clients": clients, "partition": "iid", "options": options}


def in_process(job: RunPlan, hosts: int = 1) -> Outcome:
    """Runs a job on hosts in this process, without Ray."""
    with settings_restored(job.scenario.resources):
        server = Server(job)
        workers = [Host(index, job) for index in range(hosts)]
        events = list(Scheduler(replace(job, settles=False), InlineBackend(workers, server)).run())
        return Outcome(split(server.committed()[1])[0].copy(), events)


def on_ray(job: RunPlan, after: Callable[[RoundDone], None] = lambda _: None) -> Outcome:
    """Runs a job on a Ray cluster that is started and stopped for it, and calls `after` after each round."""
    events = []
    with ray_session(job, None, RayLog(Path(os.devnull))) as session:
        for event in session.events():
            events.append(event)
            if isinstance(event, RoundDone):
                after(event)
        return Outcome(split(session.committed()[1])[0].copy(), events)


def same_bytes(name: str, one: Outcome, other: Outcome, detail: str = "") -> Finding:
    """Compares two models bit by bit."""
    equal = one.model.tobytes() == other.model.tobytes()
    digests = one.digest if equal else f"{one.digest} and {other.digest}, {differing(one.model, other.model)}"
    return Finding(name, "same" if equal else "different", equal, ", ".join(filter(None, (digests, detail))))


def differing(one: np.ndarray, other: np.ndarray) -> str:
    """Says how many values of two vectors differ, and by how much."""
    return f"{np.count_nonzero(one != other)} of {one.size} values differ, by at most {np.abs(one - other).max():.3g}"


def seconds_per_round(rounds: Sequence[RoundDone]) -> float:
    """Seconds per round over all rounds except the first, which includes one-time work."""
    return (rounds[-1].seconds - rounds[0].seconds) / (len(rounds) - 1)


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Sets environment variables within the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
