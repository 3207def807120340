"""Traffic and simulated quantities: of a run or a part of it, of one message, and as client updates report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfl.local.spending import Spending, SpendingByClient

if TYPE_CHECKING:
    from rayfl.local.context import ClientContext


@dataclass(frozen=True)
class Traffic:
    """Traffic that the protocol would cause between the server and its clients, since the start of the run.

    Attributes:
        transfers: Model transfers, in both directions.
        down_values: Numbers sent from the server to clients.
        up_values: Numbers sent from clients to the server.
        down_bytes: Bytes sent from the server to clients, as they would be encoded.
        up_bytes: Bytes sent from clients to the server, as they would be encoded.
    """

    transfers: int = 0
    down_values: int = 0
    up_values: int = 0
    down_bytes: int = 0
    up_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes in both directions."""
        return self.down_bytes + self.up_bytes

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.transfers + other.transfers,
            self.down_values + other.down_values,
            self.up_values + other.up_values,
            self.down_bytes + other.down_bytes,
            self.up_bytes + other.up_bytes,
        )


@dataclass(frozen=True)
class Simulated:
    """Simulated time, energy and failures since the start of a run.

    Attributes:
        seconds: Virtual seconds.
        joules: Energy used by clients' devices; None if their power is not given.
        unavailable: Number of drawn clients that were not available.
        dropped: Number of client updates whose answer never arrived.
        late: Number of client updates that were cut, at a deadline or because enough others had answered.
        transfer: Virtual seconds that clients' devices spent receiving and sending, in all; None if devices do not have
            both a bandwidth and a speed.
        training: The same for computing.

    Example:
        >>> from rayfl.schedules import Simulated
        >>> (Simulated(seconds=10.0, dropped=1) + Simulated(seconds=2.5)).seconds
        12.5
    """

    seconds: float = 0.0
    joules: float | None = None
    unavailable: int = 0
    dropped: int = 0
    late: int = 0
    transfer: float | None = None
    training: float | None = None

    def __add__(self, other: Simulated) -> Simulated:
        return Simulated(
            self.seconds + other.seconds,
            _added(self.joules, other.joules),
            self.unavailable + other.unavailable,
            self.dropped + other.dropped,
            self.late + other.late,
            _added(self.transfer, other.transfer),
            _added(self.training, other.training),
        )


def _added(total: float | None, more: float | None) -> float | None:
    """A total with more of it; None stays None, for what is not counted."""
    return None if total is None else total + (more or 0.0)


@dataclass(frozen=True)
class Message:
    """The traffic of one exchange with one client.

    Attributes:
        down: Traffic from the server to the client.
        up: Traffic from the client to the server.
    """

    down: Traffic
    up: Traffic


@dataclass(frozen=True)
class UpdateReport:
    """Losses, scalars and costs of the client updates of one call on a host.

    Attributes:
        losses: The sum and the number of step losses, by client.
        traffic: The protocol's traffic.
        scalars: Reported scalars by client and name.
        spent: Privacy spent, by client; empty without `local.dp`.
        seconds: How long they took, by the host's clock; 0 if that was not measured.
    """

    losses: Mapping[int, tuple[float, int]]
    traffic: Traffic
    scalars: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    spent: SpendingByClient = field(default_factory=dict)
    seconds: float = 0.0


class ReportBuilder:
    """Collects the reports of the client updates of one call on a host."""

    def __init__(self) -> None:
        self._losses: dict[int, tuple[float, int]] = {}
        self._traffic = Traffic()
        self._scalars: dict[int, dict[str, float]] = {}
        self._spent: dict[int, Spending] = {}

    def add(self, client: ClientContext, traffic: Traffic) -> None:
        """Adds one client update and its protocol traffic."""
        self._traffic += traffic
        self._losses[client.id] = client._losses_for_reports()
        if client.scalars:
            self._scalars[client.id] = client.scalars
        self.charge(client)

    def charge(self, client: ClientContext) -> None:
        """Adds the privacy that a client update spent."""
        if client.spent:
            self._spent[client.id] = client.spent

    def result(self) -> UpdateReport:
        """The report of all updates."""
        return UpdateReport(self._losses, self._traffic, self._scalars, self._spent)
