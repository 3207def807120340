"""Your own aggregation of the clients' single updates. This one leaves out the longest.

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
    """The mean of the updates, without those with the largest norms."""

    leave_out: PositiveInt = 1

    def combine(self, updates: Updates) -> np.ndarray:
        """Reduces the clients' updates, in order of client number, to float64 [n]."""
        lengths = [float(np.linalg.norm(vector)) for vector in updates.vectors]
        kept = np.ones(len(updates))
        kept[np.argsort(lengths, kind="stable")[-self.leave_out :]] = 0.0
        return updates.weighted_mean(kept)

    def check_cohort(self, smallest: int, largest: int) -> None:
        """Runs before training starts; rayfl adds the key of this aggregation to the error."""
        if smallest <= self.leave_out:
            raise ScenarioError(f"leaving out {self.leave_out} of {smallest} clients leaves none; lower leave_out")
