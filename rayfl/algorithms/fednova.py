"""FedNova: clients that take more local steps do not pull the average further.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
eq. 9 and section 4.2 for local momentum.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.algorithms.fedavg import FedAvg
from rayfl.local.steps import effective_steps

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedNova(FedAvg):
    """w <- w + tau_eff sum_i p_i (w_i - w) / tau_i, tau_eff = sum_i p_i tau_i; equal steps make it FedAvg.

    tau_i is ||a_i||_1, where the client's change is eta times a combination of its gradients with coefficients a_i: the
    number of its steps, or with momentum rho: (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho). Buffers are
    averaged plainly. Gradual unfreezing does not change tau_i.
    """

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        answers = yield Exchange(self.fit, server.model)
        rescaled = answers.mean("steps") * answers.mean("change")
        self.update(server, answers, np.concatenate([rescaled, answers.mean("buffer_change")]))

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        delta = self.local_update(client, model) - model
        steps = effective_steps(len(client.losses), client.local.momentum)
        asides = self.asides(client, model, delta)
        num_params = len(client.model.params)
        return Answer(
            self.weight(client),
            asides=asides,
            change=delta[:num_params] / steps,
            steps=delta.new_full((1,), steps),
            buffer_change=delta[num_params:],
        )
