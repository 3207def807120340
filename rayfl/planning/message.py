"""The traffic of one exchange with one client."""

from __future__ import annotations

from dataclasses import dataclass

from rayfl.planning.totals import Traffic


@dataclass(frozen=True)
class Message:
    """The traffic of one exchange with one client.

    Attributes:
        down: Traffic from the server to the client.
        up: Traffic from the client to the server.
    """

    down: Traffic
    up: Traffic
