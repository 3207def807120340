"""Your own server optimizer, which turns the clients' mean change into a step. This one is Lion.

    cd examples && python -m rayfl.scenario femnist_fedavg --quick --backend inline \
        phases.federated.algorithm.server_optimizer='{ name = "own_server_optimizer:Lion", lr = 0.003 }'

Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, without weight decay.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat

from rayfl.algorithms import Declaration, ServerOptimizer, ServerState

Decay = Annotated[float, Field(ge=0, lt=1)]


class Lion(ServerOptimizer):
    """w <- w + lr sign(beta_1 m + (1 - beta_1) delta), then m <- beta_2 m + (1 - beta_2) delta."""

    lr: PositiveFloat = 0.003
    beta_1: Decay = 0.9
    beta_2: Decay = 0.99

    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        """Returns the step to add to the parameters, from their mean change, float64 [num_params]."""
        momentum = server.get("momentum", 0.0)
        server.keep("momentum", self.beta_2 * momentum + (1 - self.beta_2) * delta)
        step: np.ndarray = self.lr * np.sign(self.beta_1 * momentum + (1 - self.beta_1) * delta)
        return step

    def server_state(self) -> Declaration:
        """Declares the state that the server keeps, and its scope."""
        return {"momentum": "phase"}
