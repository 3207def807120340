"""Backend `inline`: a host and the server in this process, every call at once. The reference for bit-equality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rayfl.engine.backend import Ref
from rayfl.engine.evaluation import cut
from rayfl.engine.events import Event
from rayfl.engine.host import Host
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.session import Job, Session


class _Value:
    """A reference whose value is there."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _InlineWorker:
    def __init__(self, target: object) -> None:
        self._target = target

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        values = [argument.value if isinstance(argument, _Value) else argument for argument in arguments]
        result = getattr(self._target, method)(*values)
        return _Value(result) if returns == 1 else [_Value(part) for part in result]


class InlineBackend:
    """Hosts and server as plain objects."""

    def __init__(self, hosts: Sequence[Host], server: Server) -> None:
        self.hosts = [_InlineWorker(host) for host in hosts]
        self.server = _InlineWorker(server)

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        return refs

    def get(self, ref: Ref) -> Any:
        return ref.value


class InlineSession:
    def __init__(self, job: Job) -> None:
        host = Host(0, job.scenario, job.store)
        self._server = Server(job.scenario, job.initial, job.num_params, job.store.num_clients)
        slices = cut(job.scenario.evaluation, job.store)
        backend = InlineBackend([host], self._server)
        self._scheduler = Scheduler(job.scenario, backend, job.store.train_shards.sizes, slices)
        self.hosts = [host.describe()]

    def events(self) -> Iterator[Event]:
        return self._scheduler.run()

    def model(self) -> np.ndarray:
        return self._server.model()


@contextmanager
def inline_session(job: Job) -> Iterator[Session]:
    """Runs in this process, and leaves its thread count and random state as they were."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            yield InlineSession(job)
    finally:
        torch.set_num_threads(threads)
