"""Sessions in this process that stop at any moment of a run, on any number of hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rayfl.backends.inline import InlineBackend, InlineSession
from rayfl.engine.backend import BackendSession
from rayfl.engine.device import settings_restored
from rayfl.engine.host import Host
from rayfl.engine.initial_model import TORCH_GLOBALS
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server


class StoppedHere(BaseException):
    """The run was stopped on purpose; no exception, since it must not be caught and reported."""


class Moments:
    """Counts the moments of a run: before and after every call of a host or the server, and before every client update.

    Args:
        last: At this one the run is stopped, counted from 1; None lets it end.

    Attributes:
        passed: How many there were.
    """

    def __init__(self, last: int | None = None) -> None:
        self._last, self.passed = last, 0

    def next(self) -> None:
        self.passed += 1
        if self.passed == self._last:
            raise StoppedHere

    def begins(self, clients: Sequence[int]) -> None:
        self.next()


class _Worker:
    def __init__(self, worker: Any, moments: Moments) -> None:
        self._worker, self._moments = worker, moments

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        if method == "written":
            return self._worker.call(method, arguments[0], True)  # what is written when, must not depend on the clock
        self._moments.next()
        result = self._worker.call(method, *arguments, returns=returns)
        self._moments.next()
        return result


class _Backend(InlineBackend):
    def __init__(self, hosts: Sequence[Host], server: Server, moments: Moments, rounds_ahead: int) -> None:
        super().__init__(hosts, server)
        self.rounds_ahead = rounds_ahead
        self.hosts = [_Worker(host, moments) for host in self.hosts]
        self.server = _Worker(self.server, moments)  # type: ignore[assignment]


class _Session(InlineSession):
    def __init__(self, job: RunPlan, hosts: int, moments: Moments, rounds_ahead: int) -> None:
        workers = [Host(n, job, moments.begins) for n in range(hosts)]
        self._server = Server(job)
        backend = _Backend(workers, self._server, moments, rounds_ahead)
        self._scheduler = Scheduler(job, backend)
        self.hosts = [host.describe() for host in workers]


@contextmanager
def stopping_session(job: RunPlan, hosts: int, moments: Moments, rounds_ahead: int = 0) -> Iterator[BackendSession]:
    """As `inline_session`, on several hosts.

    Args:
        job: What to run.
        hosts: How many.
        moments: Stop the run.
        rounds_ahead: See `Backend.rounds_ahead`.
    """
    with TORCH_GLOBALS, settings_restored(job.scenario.resources):
        yield _Session(job, hosts, moments, rounds_ahead)
