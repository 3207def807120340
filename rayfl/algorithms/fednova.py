"""FedNova: clients that take more local steps do not pull the average further.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
eq. 9 and section 4.2 for local momentum.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.algorithms.fedavg import FedAvg

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedNova(FedAvg):
    """w <- w + tau_eff sum_i p_i (w_i - w) / tau_i, tau_eff = sum_i p_i tau_i; equal steps make it FedAvg.

    tau_i is ||a_i||_1, where the client's change is eta times a combination of its gradients with coefficients a_i: the
    number of its steps, or with momentum rho: (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho). Buffers are averaged
    in the same way. Gradual unfreezing does not change tau_i.
    """

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        answers = yield Exchange(self.fit, server.model)
        self.update(server, answers, answers.mean("steps") * answers.mean("change"))

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        delta = self.local_update(client, model) - model
        steps = effective_steps(len(client.losses), client.local.momentum)
        asides = self.asides(client, model, delta)
        return Answer(self.weight(client), asides=asides, change=delta / steps, steps=delta.new_full((1,), steps))


def effective_steps(steps: int, momentum: float) -> float:
    """||a||_1 of SGD with heavy-ball momentum."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
