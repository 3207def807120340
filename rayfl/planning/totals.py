"""Totals of traffic and simulated quantities of a run, or of a part of it."""

from __future__ import annotations

from dataclasses import dataclass


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

    def __add__(self, other: Simulated) -> Simulated:
        return Simulated(
            self.seconds + other.seconds,
            None if self.joules is None else self.joules + (other.joules or 0.0),
            self.unavailable + other.unavailable,
            self.dropped + other.dropped,
            self.late + other.late,
        )
