"""Central training: pooled samples on one worker, with the same training code as for clients."""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.config.phase import CentralPhase
from rayfl.engine.schedules.relay import Relay


class Central(Relay):
    """A relay with one member, which holds the pooled samples."""

    config = CentralPhase
    noun = "central phase"

    def names(self, clients: Sequence[int]) -> str:
        """See `Schedule.names`."""
        return "central training"
