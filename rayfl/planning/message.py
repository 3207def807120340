"""What one exchange moves for one client."""

from __future__ import annotations

from dataclasses import dataclass

from rayfl.planning.totals import Traffic


@dataclass(frozen=True)
class Message:
    """What one exchange moves for one client.

    Attributes:
        down: From the server.
        up: To it.
    """

    down: Traffic
    up: Traffic
