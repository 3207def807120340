"""Central training: pooled samples, on one host, with the clients' own training code."""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.config.phase import CentralPhase
from rayfl.engine.schedules.relay import Relay


class Central(Relay):
    """A relay of one, whose only member holds the pooled samples."""

    config = CentralPhase
    noun = "central training"

    def names(self, clients: Sequence[int]) -> str:
        """See `Schedule.names`."""
        return "central training"
