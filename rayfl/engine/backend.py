"""The interface between scheduler and backend, and that of an open run on any backend.

Calls on workers return references, which further calls may take. Calls under way have a description for messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rayfl.engine.events import Event
    from rayfl.engine.state.snapshots import RunSnapshot
    from rayfl.engine.state.state_store import StateStore
    from rayfl.models.tensors import SentModel
    from rayfl.privacy.release_ledger import Charges

Ref = Any
"""A reference to a value that a worker may not have produced yet."""

LONGEST_CHAIN = 256
"""Length of a chain of calls linked by references, after which the scheduler calls `Backend.detached`.

Ray keeps the lineage of every object until nothing depends on it, and releases a chain recursively: the scheduler's
stack overflows after some 6 700 calls. Detaching costs one round trip to the server and drains the pipeline once; every
256 calls, this is too rare to measure, and the lineage stays below 2 MB.
"""


class Worker(Protocol):
    """A host or the server, in this process or another."""

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        """Starts a method without waiting for it.

        Args:
            method: Name of the method.
            arguments: Its arguments; references are replaced by their values before the method runs.
            returns: Number of values that the method returns, as a tuple if more than one.

        Returns:
            A reference to the result, or a list of references if there is more than one.
        """


class Backend(Protocol):
    """Gives access to the hosts and the server, and waits for references."""

    @property
    def rounds_ahead(self) -> int:
        """Number of rounds submitted ahead of the current one, to keep hosts from waiting for the scheduler."""

    @property
    def hosts(self) -> Sequence[Worker]:
        """The hosts, by number."""

    @property
    def nodes(self) -> Sequence[object]:
        """The node of every host, or whatever names the machine that it runs on."""

    @property
    def server(self) -> Worker:
        """The server."""

    def add(self, hosts: Sequence[Worker], nodes: Sequence[object]) -> None:
        """Lets more hosts take part, with the next numbers.

        Args:
            hosts: The hosts, which have begun the run.
            nodes: Their nodes.
        """

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        """Waits until at least one reference is ready, and returns all that are; none after the timeout."""

    def get(self, ref: Ref) -> Any:
        """Returns the value of a reference, or raises what the call raised."""

    def progress(self) -> int:
        """Returns the number of batches that hosts have made, as far as it is known; it grows while they work."""

    def detached(self, ref: Ref) -> Ref:
        """Returns a new reference to a value, without the lineage of the calls that made it.

        Blocks until the value exists, so wait for the calls behind it first, under the watchdog. The value itself does
        not pass through the caller.

        Args:
            ref: The value's current reference; the caller can drop it afterwards.
        """


@dataclass(frozen=True)
class Call:
    """A call whose result the scheduler waits for.

    Attributes:
        ref: Reference to the result.
        what: Description for messages, such as "worker 0: clients 3, 7".
        host: Number of the worker process that computes it; None for the server, or if several take part.
    """

    ref: Ref
    what: str
    host: int | None = None


class BackendSession(Protocol):
    """An open run on a backend."""

    @property
    def hosts(self) -> Sequence[dict[str, str]]:
        """Description of each host."""

    @property
    def dashboard(self) -> str | None:
        """The address of Ray's dashboard, if the session has started one."""

    def events(self) -> Iterator[Event]:
        """Runs the scenario to its end, and yields its events."""

    def committed(self) -> tuple[int, SentModel]:
        """The number of the last committed round, 0 before the first, and its model to evaluate.

        If rounds settle (`RunPlan.settles`), this is the round whose events are being handled.
        """

    def end_of_phase(self, round: int) -> SentModel | None:
        """The model to evaluate after the last round of a phase; call it while handling that round's `RoundDone`.

        None if the model was lost with the server, which continued after a later round.
        """

    def stop(self, round: int) -> None:
        """Ends the run after a round, or after the first one behind it where that is possible, which then settles.

        If all rounds settle (`RunPlan.settles`), call it while handling the `RoundSettled` of that round. Otherwise
        other threads may call it at any time, with a round whose `RoundDone` has not been handled.
        """

    def checkpoint_to(self, store: StateStore) -> None:
        """Adds a `SnapshotTaken` to the events whenever [checkpoint] asks for one; call it before `events`.

        Args:
            store: Where hosts and server write their states.
        """

    def charge_to(self, charges: Charges) -> None:
        """Charges every round before it begins; call it after `restore` and before `events`."""

    def interrupt(self) -> None:
        """Ends the run after the current round, with a snapshot of it; signal handlers may call it."""

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        """Continues after the round of a snapshot, on any number of hosts; call it before `events`.

        Args:
            snapshot: From a `SnapshotTaken` of a session of the same plan.
            store: As for `Scheduler.restore`.
        """


def client_names(clients: Sequence[int]) -> str:
    """Names clients in messages; only the first eight are listed."""
    shown = ", ".join(str(client) for client in clients[:8])
    return f"clients {shown}" + (f" and {len(clients) - 8} more" if len(clients) > 8 else "")
