"""Ray remembers how each object was made, and forgets a long chain by recursion: relays must break their chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ray

from rayfl.backends.ray.workers import ActorWorker, RayBackend
from rayfl.engine.backend import LONGEST_CHAIN

HOPS = 7_000
"""With one chain of references, Ray overflowed the scheduler's stack after 6 700."""
REPORTS_HELD = 40
VALUES = 26_000
"""float32 values of a model: a little more than the 100 KB below which Ray keeps a value in its messages."""


class PlainHost:
    """Adds one to a model, without PyTorch."""

    def relay(self, model: np.ndarray) -> tuple[np.ndarray, int]:
        return model + 1, 1


class PlainServer:
    def model(self) -> np.ndarray:
        return np.zeros(VALUES, np.float32)

    def hold(self, model: np.ndarray) -> list[Any]:
        return [ray.put(model)]


class PlainScheduler:
    """A relay over two hosts, as the engine's scheduler submits it."""

    def __init__(self, backend: RayBackend) -> None:
        self._backend = backend

    def run(self, hops: int) -> tuple[float, list[int]]:
        """Returns the model's first value, and the bytes of memory this process held after each tenth of the hops."""
        model, reports, memory = self._backend.server.call("model"), [], []
        for hop in range(hops):
            if hop and hop % LONGEST_CHAIN == 0:
                model = self._backend.detached(model)
            model, report = self._backend.hosts[hop % 2].call("relay", model, returns=2)
            reports.append(report)
            if len(reports) == REPORTS_HELD:
                for done in reports:
                    self._backend.get(done)
                reports.clear()
            if (hop + 1) % (hops // 10) == 0:
                memory.append(resident_bytes())
        return float(self._backend.get(model)[0]), memory


def resident_bytes() -> int:
    with open("/proc/self/status") as status:  # noqa: PTH123 - no file of ours
        line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_relay_of_7_000_hops_ends_and_the_schedulers_memory_stays_flat() -> None:
    hosts: list[Any] = [
        ray.remote(PlainHost)
        .options(num_cpus=1, max_restarts=1, max_task_retries=-1, allow_out_of_order_execution=True)
        .remote()
        for _ in range(2)
    ]
    server: Any = ray.remote(PlainServer).options(num_cpus=0).remote()
    backend = RayBackend(
        [ActorWorker(host, "a host", PlainHost) for host in hosts], ActorWorker(server, "the server", PlainServer)
    )
    scheduler: Any = ray.remote(PlainScheduler).options(num_cpus=0).remote(backend)
    value, memory = ray.get(scheduler.run.remote(HOPS))
    assert value == HOPS
    # with one chain it grew by 6.7 kB a hop, 120 MB from the first tenth to the last
    assert memory[-1] - memory[0] < 8 * 2**20
    for actor in (scheduler, server, *hosts):
        ray.kill(actor)
