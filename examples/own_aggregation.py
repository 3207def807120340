"""Your own aggregation: what the server makes of the clients' updates, one by one. Here it leaves out the longest.

    cd examples && python -m rayfl.scenario femnist_fedavg --quick --backend inline \
        phases.federated.algorithm.weighting=uniform \
        phases.federated.algorithm.aggregation='{ name = "own_aggregation:WithoutTheLongest", leave_out = 2 }'
"""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from rayfl import ScenarioError
from rayfl.algorithms import Aggregation, Updates


class WithoutTheLongest(Aggregation):
    """The mean of all updates but those with the largest norms."""

    leave_out: PositiveInt = 1

    def combine(self, updates: Updates) -> np.ndarray:
        """From the clients' updates, in order of client number, to float64 [n]."""
        lengths = [float(np.linalg.norm(vector)) for vector in updates.vectors]
        kept = np.ones(len(updates))
        kept[np.argsort(lengths, kind="stable")[-self.leave_out :]] = 0.0
        return updates.weighted_mean(kept)

    def check_cohort(self, smallest: int, largest: int) -> None:
        """Called before anything starts; the error names the key of this aggregation."""
        if smallest <= self.leave_out:
            raise ScenarioError(f"of {smallest} clients, {self.leave_out} left out leave none; leave out fewer")
