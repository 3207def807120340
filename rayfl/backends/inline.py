"""Backend `inline`: one host and the server in this process, every call run immediately; the bitwise reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rayfl.engine.backend import BackendSession, Ref, Worker
from rayfl.engine.device import settings_restored
from rayfl.engine.events import Event
from rayfl.engine.host import Host
from rayfl.engine.initial_model import TORCH_GLOBALS
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import StateStore
from rayfl.models.tensors import SentModel
from rayfl.privacy.release_ledger import Charges


class _Value:
    """A reference to a value that already exists."""

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
    """Runs hosts and server as plain objects in this process.

    Args:
        hosts: The hosts.
        server: The server.
    """

    rounds_ahead = 0  # submitting a round runs it

    def __init__(self, hosts: Sequence[Host], server: Server) -> None:
        self.hosts: list[Worker] = [_InlineWorker(host) for host in hosts]
        self.nodes: list[object] = [0] * len(hosts)
        self.server = _InlineWorker(server)

    def add(self, hosts: Sequence[Worker], nodes: Sequence[object]) -> None:
        """Lets more hosts take part."""
        self.hosts += hosts
        self.nodes += nodes

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        """Returns all references, since every call has already finished."""
        return refs

    def progress(self) -> int:
        """Returns 0, since nobody waits for a call."""
        return 0

    def detached(self, ref: Ref) -> Ref:
        """Returns the reference itself, since inline references have no lineage."""
        return ref

    def get(self, ref: Ref) -> Any:
        """Returns the value of a reference."""
        return ref.value


class InlineSession:
    """A run in this process; see `BackendSession`.

    Attributes:
        hosts: Description of the only host.
    """

    dashboard = None

    def __init__(self, run: RunPlan) -> None:
        host = Host(0, run)
        self._server = Server(run)
        self._scheduler = Scheduler(run, InlineBackend([host], self._server))
        self.hosts = [host.describe()]

    def events(self) -> Iterator[Event]:
        """Runs the scenario to its end, and yields its events."""
        return self._scheduler.run()

    def committed(self) -> tuple[int, SentModel]:
        """Returns the number of the last committed round and the model to evaluate."""
        return self._server.committed()

    def end_of_phase(self, round: int) -> SentModel | None:
        """Returns the model to evaluate after the last round of a phase."""
        return self._server.end_of_phase(round)

    def stop(self, round: int) -> None:
        """Ends the run after a round; see `BackendSession.stop`."""
        self._scheduler.stop(round)

    def checkpoint_to(self, store: StateStore) -> None:
        """Enables snapshots, with their states in a store."""
        self._scheduler.checkpoint_to(store)

    def charge_to(self, charges: Charges) -> None:
        """Charges every round before it begins."""
        self._scheduler.charge_to(charges)

    def interrupt(self) -> None:
        """Ends the run after the current round, with a snapshot of it."""
        self._scheduler.interrupt()

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        """Continues after the round of a snapshot."""
        self._scheduler.restore(snapshot, store)


@contextmanager
def inline_session(run: RunPlan) -> Iterator[BackendSession]:
    """Opens a session in this process, and restores PyTorch's settings and random state afterwards.

    PyTorch's random generator and thread count belong to the whole process, so only one thread can hold a session at a
    time; others wait for it to close.

    Args:
        run: The run's plan.

    Yields:
        The session.
    """
    with TORCH_GLOBALS, settings_restored(run.scenario.resources):
        yield InlineSession(run)
